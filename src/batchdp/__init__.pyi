"""Every public name and its home: the one list, read by type checkers and, when a name is first used, by Python."""

from . import workloads as workloads
from .audits import audit as audit
from .domain import Domain as Domain
from .domain import load_domain as load_domain
from .errors import AccuracyError as AccuracyError
from .errors import BatchDPError as BatchDPError
from .errors import BudgetError as BudgetError
from .errors import DomainError as DomainError
from .errors import DossierError as DossierError
from .errors import LatticeError as LatticeError
from .errors import LedgerError as LedgerError
from .errors import PlanError as PlanError
from .errors import PrivacyParameterError as PrivacyParameterError
from .errors import QueryError as QueryError
from .errors import ReleaseError as ReleaseError
from .errors import StrategyError as StrategyError
from .errors import TableError as TableError
from .errors import WorkloadError as WorkloadError
from .ledger import Ledger as Ledger
from .linalg.product import Product as Product
from .optimizer import optimize as optimize
from .optimizer.families import STRATEGIES as STRATEGIES
from .optimizer.families.low_rank import low_rank as low_rank
from .plans import Plan as Plan
from .plans import epsilon_for as epsilon_for
from .plans import load_plan as load_plan
from .plans import outlook as outlook
from .plans import plan as plan
from .plans import plan_for as plan_for
from .plans.comparison import compare as compare
from .release import Answer as Answer
from .release import Consistent as Consistent
from .release import Release as Release
from .release import answer as answer
from .release import estimate as estimate
from .release import export as export
from .release import load_release as load_release
from .reports import report as report
from .reports import report_plan as report_plan
from .reports.dossier import dossier as dossier
from .reports.dossier import verify as verify
from .strategies import bounds as bounds
from .strategies.marginal.strategy import MarginalStrategy as MarginalStrategy
from .strategies.pair import PairStrategy as PairStrategy
from .strategies.residual.strategy import ResidualStrategy as ResidualStrategy
from .strategies.shaped import ShapeLimits as ShapeLimits
from .strategies.strategy import Strategy as Strategy
from .workloads.kronecker import KroneckerWorkload as KroneckerWorkload
from .workloads.matrix import MatrixWorkload as MatrixWorkload
from .workloads.matrix import Workload as Workload

__all__: list[str]
__version__: str
