"""Tables as terminal output, Markdown, CSV and HTML."""

from unseen.report.tables.text import markdown, percent, show

__all__ = ["markdown", "percent", "show"]
