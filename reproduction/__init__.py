"""The paper's evaluation (Section 6) again: every figure measured, drawn and compared with what the paper says of it.

It is no part of the package: `python -m reproduction all`, or `make reproduce`, in a clone of the repository.

parameters    Table 1
datasets      stand-ins for the three datasets, or the originals
points        what each figure measures
mechanisms    LM, WM, HM, MM, LRM, and what came later
compiled      the kernels of Algorithm 2 by Numba
measuring     a strategy's error in closed form and by repetition
processes     jobs in processes, with a time limit
journal       results on the disk, point by point
running       what is still missing, small first
drawing       PNG and SVG
findings      the results by their parameters
verdicts      what the results say about a claim
claims        the paper's claims, and why they come out so
formulas      the paper's formulas that need a correction
peers         what others publish about batches over many columns
page          all of it as one page
evaluation    from a list of figures to that page
take_over     points of another folder of results
"""
