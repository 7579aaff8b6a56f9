-- Questions that a statistician asks of court cases; examples/questions.py invents the table and answers them.
SELECT COUNT(*) AS total FROM cases;
SELECT district, felony, COUNT(*) AS by_two FROM cases GROUP BY district, felony;
SELECT district, AVG(age) AS mean_age FROM cases GROUP BY district;
SELECT MEDIAN(age) AS median_age FROM cases;
SELECT district, COUNT(*) FILTER (WHERE felony) * 100.0 / COUNT(*) AS felonies FROM cases GROUP BY district;
SELECT charge, COUNT(*) AS top_charges FROM cases GROUP BY charge ORDER BY top_charges DESC LIMIT 5;
SELECT EXTRACT(YEAR FROM filed) AS year, COUNT(*) AS by_year FROM cases GROUP BY year ORDER BY year;
SELECT DATE_TRUNC('month', filed) AS month, COUNT(*) AS by_month FROM cases GROUP BY month;
SELECT CASE WHEN age < 25 THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END AS band, COUNT(*) AS by_band FROM cases GROUP BY band;
SELECT COUNT(*) AS batteries FROM cases WHERE charge LIKE '%Battery%';
SELECT COUNT(*) AS between_days FROM cases WHERE age BETWEEN 18 AND 30 AND filed BETWEEN '2022-03-01' AND '2022-08-31';
SELECT COUNT(*) AS open_cases FROM cases WHERE closed IS NULL;
SELECT charge, COUNT(*) AS common FROM cases GROUP BY charge HAVING COUNT(*) > 300;
SELECT district, COUNT(*) AS adults FROM (SELECT * FROM cases WHERE age >= 18) AS grown WHERE felony GROUP BY district;
SELECT charge, COUNT(*) AS all_charges FROM cases GROUP BY charge;
SELECT AVG(closed - filed) AS days FROM cases;
SELECT district, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS share FROM cases GROUP BY district;
SELECT STDDEV(age) AS age_deviation FROM cases;
