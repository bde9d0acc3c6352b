"""What people read: a page, a JSON file and a terminal table, from records alone."""

from robogen.report.build import REPORT_VERSION, Report, build_report
from robogen.report.load import Run, load_run
from robogen.report.markdown import markdown_table
from robogen.report.terminal import terminal_table

__all__ = [
    "REPORT_VERSION",
    "Report",
    "Run",
    "build_report",
    "load_run",
    "markdown_table",
    "terminal_table",
]
