"""The error of a p-Identity strategy, without any n × n or k × n matrix beside the workload itself.

L = [I; P] diag(1/e): e_j is how much larger the noise on column j is than if it were measured alone, and P says how
often the shared queries count it. With Y = P diag(e) Rᵀ, K = I + P Pᵀ and Z = K⁻¹ Y the Woodbury formula gives
‖R L⁺‖²_F = Σ e_j² ‖R_j‖² − ⟨Y, Z⟩, and the derivatives need nothing new but Z R. So an evaluation is two products of R
with p rows, 4 k n p operations.
"""

from __future__ import annotations

import numpy as np

from batchdp.linalg.cholesky import plus_identity, solved
from batchdp.linalg.matrix import Dense
from batchdp.strategies.families.p_identity.products import Products


def error(R: Products, P: Dense, e: Dense) -> tuple[float, Dense, Dense]:
    """‖R L⁺‖²_F and half its derivatives by P (with e fixed) and by e (with P fixed)."""
    if len(P) == 0:  # which LAPACK does not take
        eq = e * R.squares
        return float(e @ eq), P, eq
    Y = R.answers(P * e)
    Z = solved(plus_identity(P @ P.T), Y)
    M = R.combined(Z)
    eq = e * R.squares
    by_e = eq - np.einsum("ij,ij->j", M, P)
    M *= e
    return float(e @ eq - np.vdot(Y, Z)), (Z @ Z.T) @ P - M, by_e
