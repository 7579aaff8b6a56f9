"""How much budget does an accuracy cost? Found out before anything is spent, and without the data."""

import batchdp

domain = """
table = "visits"
[columns.age]
range = [0, 120]
bins = [0, 18, 40, 65]
"""
sql = """
SELECT COUNT(*) AS everybody FROM visits;
SELECT age, COUNT(*) AS visits FROM visits GROUP BY age;
"""
plan = batchdp.plan(sql, domain)

# The error of every answer at some budgets: twice the budget, half the error.
print("standard errors      " + "  ".join(f"ε = {epsilon:<5g}" for epsilon in (0.1, 0.5, 1.0)))
errors = [plan.standard_errors(epsilon=epsilon) for epsilon in (0.1, 0.5, 1.0)]
for name, *row in zip(plan.names, *errors, strict=True):
    print(f"{name[:20]:20} " + "  ".join(f"{error:9.1f}" for error in row))

# The other way round: every answer within ±25, nineteen times out of twenty.
print(f"±25 on every answer:  ε = {batchdp.epsilon_for(plan, half_width=25):.3f}")
# Only one answer has to be that good.
print(f"±25 on the oldest:    ε = {batchdp.epsilon_for(plan, half_width=25, query='visits[age=65 to 120]'):.3f}")
# In standard errors instead of intervals, or at another confidence.
print(f"standard error of 10: ε = {batchdp.epsilon_for(plan, standard_error=10):.3f}")
print(f"±25 at 99 %:          ε = {batchdp.epsilon_for(plan, half_width=25, confidence=0.99):.3f}")
