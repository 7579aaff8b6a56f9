"""Table 1: which values the evaluation takes, as in the paper and in a smaller version for a quick look."""

from __future__ import annotations

from dataclasses import dataclass

FIGURES = tuple(f"figure-{number}" for number in range(2, 10))
PEERS = "peers"
TARGETS = ("table-1", "examples", *FIGURES, PEERS)
"""Everything that can be asked for."""


@dataclass(frozen=True)
class Table:
    """The ranges of all parameters, and the value that each has where it is not varied."""

    relaxations: tuple[float, ...]
    """γ of Formula (8)."""
    rank_ratios: tuple[float, ...]
    """r / rank(W)."""
    cells: tuple[int, ...]
    """n."""
    queries: tuple[int, ...]
    """m."""
    base_shares: tuple[float, ...]
    """s / min(m, n), for WRelated."""
    default_cells: int
    default_queries: int
    default_relaxation: float = 0.01
    default_rank_ratio: float = 1.2
    default_base_share: float = 0.5
    epsilons: tuple[float, ...] = (1.0, 0.1, 0.01)
    default_epsilon: float = 0.1
    """Of Figures 4 to 9."""
    repetitions: int = 20
    seconds: float = 300.0
    """Of computing, for one strategy."""

    def base(self, queries: int, cells: int, share: float) -> int:
        """s, at least 1."""
        return max(1, round(share * min(queries, cells)))

    def rows(self) -> list[tuple[str, str, str]]:
        """The table as it is printed: parameter, values, default."""

        def shown(values: tuple[float, ...]) -> str:
            return ", ".join(f"{value:g}" for value in values)

        return [
            ("γ", shown(self.relaxations), f"{self.default_relaxation:g}"),
            ("r / rank(W)", shown(self.rank_ratios), f"{self.default_rank_ratio:g}"),
            ("n", shown(self.cells), f"{self.default_cells}"),
            ("m", shown(self.queries), f"{self.default_queries}"),
            ("s / min(m, n)", shown(self.base_shares), f"{self.default_base_share:g}"),
            ("ε", shown(self.epsilons), f"{self.default_epsilon:g}"),
        ]


PAPER = Table(
    relaxations=(1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0),
    rank_ratios=(0.8, 1.0, 1.2, 1.4, 1.7, 2.1, 2.5, 3.0, 3.6),
    cells=(128, 256, 512, 1024, 2048, 4096, 8192),
    queries=(64, 128, 256, 512, 1024),
    base_shares=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    default_cells=1024,
    default_queries=256,
)
QUICK = Table(
    relaxations=PAPER.relaxations,
    rank_ratios=(0.8, 1.0, 1.2, 1.7, 2.5),
    cells=(32, 64, 128, 256),
    queries=(16, 32, 64, 128),
    base_shares=(0.1, 0.3, 0.5, 0.7, 1.0),
    default_cells=128,
    default_queries=32,
    seconds=20.0,
)
"""An eighth of the sizes: every figure in minutes. Its sizes are too small for some of the paper's effects."""
