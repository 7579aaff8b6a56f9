"""What others publish about batches over many columns, and what is found here for the same batches.

batches       the batches in the words of this library
figures       published figures, from figures.csv
measuring     a batch planned: its error, its limit, seconds and memory
journal       peers.csv, line by line
verdicts      ahead, equal or behind
section       the table of the page, and the picture
"""
