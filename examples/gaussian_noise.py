"""Gaussian noise: a weaker promise, and less noise where many queries touch the same person.

Its budget is ρ (of zero-concentrated differential privacy) instead of ε, and so is its ledger.
"""

import tempfile

import batchdp

W = batchdp.workloads.all_ranges(16)  # every range of 16 age groups: 136 queries

laplace = batchdp.optimize(W, seconds=2)
gaussian = batchdp.optimize(W, privacy="zcdp")

# ε-differential privacy implies ρ = ε²/2, so these two are compared at ε = 1.
print(f"Laplace noise, ε = 1:    {laplace.expected_squared_error(epsilon=1.0) / 136:.1f} per query")
print(f"Gaussian noise, ρ = 0.5: {gaussian.expected_squared_error(rho=0.5) / 136:.1f} per query")

ledger = batchdp.Ledger.create(tempfile.mkdtemp() + "/budget.db", rho=1.0)
counts = [100 + 3 * age for age in range(16)]
release = batchdp.answer(gaussian, counts, rho=0.5, ledger=ledger)

# What ρ means in ε: the chance that more than this ε is lost is below δ.
print(f"(ε, δ) = ({release.epsilon_at(delta=1e-6):.1f}, 1e-6) differential privacy")
print(f"the first of {len(release.answers)} answers: {release.answers[0].value:.1f}; ρ = {ledger.remaining} is left")
