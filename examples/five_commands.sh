#!/bin/sh
# From a CSV file to private answers and a page to show, in five commands. Needs nothing but batchdp:
#
#     sh examples/five_commands.sh
set -eu
cd "$(mktemp -d)"

# A table to practise on: visits of 4000 people to clinics.
python3 - > visits.csv << 'END'
import random
random.seed(1)
print("person_id,clinic,age,visited")
for person in range(4000):
    clinic, age = random.choice(["north", "south", "south", "east"]), random.randint(0, 95)
    for _ in range(random.choice([1, 1, 2])):
        print(person, clinic, age, f"2024-{random.randint(1, 12):02}-{random.randint(1, 28):02}", sep=",")
END

# 1. Draft: looks at the names of the columns and at nothing else.
batchdp init visits.csv

# What is public about the table; written by hand, from what is known without the data.
cat > domain.toml << 'END'
table = "visits"

[privacy]
unit = "person_id"               # one value = one person
rows_per_unit = 2                # at most two visits of a person are counted
neighbours = "add-remove"
max_rows = 1_000_000             # the clinics cannot have had more visits than this

[columns.clinic]
values = ["north", "south", "east", "west"]
[columns.age]
range = [0, 120]
bins = [0, 18, 40, 65]
[columns.visited]
dates = ["2024-01-01", "2024-12-31"]
END

# What we want to know, all at once: queries that are asked together share their measurements.
cat > queries.sql << 'END'
SELECT COUNT(*) AS visits FROM visits;
SELECT clinic, COUNT(*) AS visits FROM visits GROUP BY clinic;
SELECT age, COUNT(*) AS visits FROM visits GROUP BY age;
SELECT COUNT(*) AS "adults in the north" FROM visits WHERE clinic = 'north' AND age >= 18;
SELECT COUNT(*) AS "since July" FROM visits WHERE visited >= DATE '2024-07-01';
END

# 2. Plan: how accurate will every answer be? No data is read, nothing is spent; repeat as often as you like.
batchdp plan queries.sql --domain domain.toml -o visits.plan

# 3. Set a budget, once, for these people. Whatever is answered about them is charged to it.
batchdp budget budget.db --create --epsilon 1

# 4. Answer: the budget is charged, then the visits are counted and noise is added. These answers may be published.
batchdp answer visits.plan --table visits.csv --epsilon 0.5 --ledger budget.db -o answers.csv --yes

# 5. Show: one page with every answer, its interval and the guarantee in plain words.
batchdp report answers.release -o page.html

echo "Everything is in $PWD."
