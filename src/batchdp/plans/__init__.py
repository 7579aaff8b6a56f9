"""Plans: SQL and a domain, turned into cells and a strategy for them. No data is read."""

from batchdp.plans.accuracy import epsilon_for
from batchdp.plans.file import load_plan
from batchdp.plans.making import plan
from batchdp.plans.outlook import Outlook, outlook
from batchdp.plans.planned import Plan
from batchdp.plans.tabled import TablePlan

__all__ = ["Outlook", "Plan", "TablePlan", "epsilon_for", "load_plan", "outlook", "plan"]
