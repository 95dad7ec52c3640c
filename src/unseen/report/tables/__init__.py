"""Tables as terminal output, Markdown, CSV and HTML."""

from unseen.report.tables.text import markdown, percent, percent_with_std, show

__all__ = ["markdown", "percent", "percent_with_std", "show"]
