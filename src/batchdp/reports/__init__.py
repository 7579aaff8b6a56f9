"""A release as one page for people: plots, a table, the guarantee in plain words; a single file, no network."""

from batchdp.reports.page import page, report
from batchdp.reports.planned import report_plan

__all__ = ["page", "report", "report_plan"]
