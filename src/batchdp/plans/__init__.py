"""Plans: SQL and a domain, turned into cells and a strategy for them. No data is read."""

from batchdp.plans.file import load_plan
from batchdp.plans.making import plan
from batchdp.plans.planned import Plan

__all__ = ["Plan", "load_plan", "plan"]
