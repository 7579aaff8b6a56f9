-- An everyday batch: eleven statements over seven columns, 188 answers.
SELECT COUNT(*) AS total FROM flights;
SELECT month, COUNT(*) AS by_month FROM flights GROUP BY month;
SELECT carrier, COUNT(*) AS by_carrier FROM flights GROUP BY carrier;
SELECT origin, COUNT(*) AS by_origin FROM flights GROUP BY origin;
SELECT origin, month, COUNT(*) AS by_origin_month FROM flights GROUP BY origin, month;
SELECT carrier, origin, COUNT(*) AS by_carrier_origin FROM flights GROUP BY carrier, origin;
SELECT dep_delay, COUNT(*) AS by_delay FROM flights GROUP BY dep_delay;
SELECT carrier, COUNT(*) AS late_by_carrier FROM flights WHERE arr_delay >= 30 GROUP BY carrier;
SELECT hour, COUNT(*) AS by_hour FROM flights GROUP BY hour;
SELECT hour, COUNT(*) AS late_by_hour FROM flights WHERE dep_delay >= 15 GROUP BY hour;
SELECT COUNT(*) AS cancelled FROM flights WHERE air_time IS NULL;
