#!/bin/sh
# A dashboard of flights with averages, medians and shares, from a CSV file in five commands. Needs nothing but batchdp:
#
#     sh examples/flights.sh
set -eu
cd "$(mktemp -d)"

# A table to practise on: 20 000 flights of a year.
python3 - > flights.csv << 'END'
import random
random.seed(1)
carriers = {"AA": 3, "AS": 1, "B6": 5, "DL": 5, "EV": 5, "F9": 1, "HA": 1, "UA": 6, "US": 2, "WN": 1}
print("month,carrier,origin,hour,dep_delay,arr_delay,air_time,distance")
for _ in range(20_000):
    (carrier,) = random.choices(list(carriers), list(carriers.values()))
    origin, hour = random.choice(["EWR", "JFK", "LGA"]), random.randint(5, 23)
    if random.random() < 0.02:  # cancelled
        print(random.randint(1, 12), carrier, origin, hour, "", "", "", random.randint(200, 2500), sep=",")
        continue
    delay = round(random.gauss(-3, 6) + (random.expovariate(1 / (20 + 2 * hour)) if random.random() < 0.3 else 0))
    distance = min(4983, max(90, round(random.lognormvariate(6.7 + 0.1 * carriers[carrier], 0.5))))
    arrival = delay + round(random.gauss(-5, 15))
    print(random.randint(1, 12), carrier, origin, hour, delay, arrival, distance // 8 + 20, distance, sep=",")
END

# 1. Draft: looks at the names of the columns and at nothing else.
batchdp init flights.csv

# What is public about the table; written by hand, from what is known without the data.
cat > domain.toml << 'END'
table = "flights"

[privacy]
max_rows = 1_000_000             # there cannot have been more flights than this

[columns.month]
integers = [1, 12]
[columns.carrier]
values = ["AA", "AS", "B6", "DL", "EV", "F9", "HA", "UA", "US", "WN"]
[columns.origin]
values = ["EWR", "JFK", "LGA"]
[columns.hour]
integers = [0, 23]
[columns.dep_delay]
range = [-60, 1440]
bins = [-60, 0, 15, 30, 60, 120, 240]
[columns.arr_delay]
range = [-120, 1440]
bins = [-120, -60, -40, -30, -20, -15, -10, -5, 0, 5, 10, 20, 30, 60, 120, 240]   # what the median is looked for in
[columns.air_time]
integers = [0, 900]
[columns.distance]
integers = [0, 5000]
outside = "clip"
END

# What we want to know, all at once: queries that are asked together share their measurements.
cat > queries.sql << 'END'
SELECT COUNT(*) AS total FROM flights;
SELECT month, COUNT(*) AS by_month FROM flights GROUP BY month;
SELECT carrier, COUNT(*) AS by_carrier FROM flights GROUP BY carrier;
SELECT origin, COUNT(*) AS by_origin FROM flights GROUP BY origin;
SELECT dep_delay, COUNT(*) AS by_delay FROM flights GROUP BY dep_delay;
SELECT hour, COUNT(*) AS by_hour FROM flights GROUP BY hour;
SELECT COUNT(*) AS cancelled FROM flights WHERE air_time IS NULL;
SELECT carrier, AVG(distance) AS average_distance FROM flights GROUP BY carrier;
SELECT carrier, MEDIAN(arr_delay) AS median_delay FROM flights GROUP BY carrier;
SELECT carrier, 100.0 * COUNT(*) FILTER (WHERE arr_delay >= 30) / COUNT(*) AS late_percent FROM flights GROUP BY carrier;
END

# 2. Plan: how accurate will every answer be, if carriers have some 2000 flights? No data is read, nothing is spent.
batchdp plan queries.sql --domain domain.toml -o flights.plan --assume 2000

# 3. Set a budget, once. Whatever is answered about these flights is charged to it.
batchdp budget budget.db --create --epsilon 3

# 4. Answer: the budget is charged, then the flights are counted and noise is added. These answers may be published.
batchdp answer flights.plan --table flights.csv --epsilon 1 --ledger budget.db -o answers.csv --yes

# 5. Show: one page with every answer, its interval and the guarantee in plain words.
batchdp report answers.release -o page.html

echo "Everything is in $PWD."
