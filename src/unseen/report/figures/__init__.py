"""Figures: SVG for the report page, PNG for files."""
