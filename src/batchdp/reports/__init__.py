"""A release as one page for people: plots, a table, the guarantee in plain words; a single file, no network."""

from batchdp.reports.page import page, report
from batchdp.reports.planned import report_plan
from batchdp.reports.records import report_records

__all__ = ["page", "report", "report_plan", "report_records"]
