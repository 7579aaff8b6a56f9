"""Plans: SQL and a domain, turned into what is counted and a strategy for it. No data is read."""

from batchdp.plans.accuracy import epsilon_for
from batchdp.plans.file import load_plan
from batchdp.plans.making import plan
from batchdp.plans.outlook import Outlook, outlook
from batchdp.plans.planned import Plan
from batchdp.plans.targets import plan_for

__all__ = ["Outlook", "Plan", "epsilon_for", "load_plan", "outlook", "plan", "plan_for"]
