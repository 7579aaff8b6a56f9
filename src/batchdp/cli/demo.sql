-- Totals and overlapping ranges
SELECT COUNT(*) AS patients FROM patients;
SELECT COUNT(*) AS adults FROM patients WHERE age >= 18;
SELECT COUNT(*) AS "18 to 64" FROM patients WHERE age BETWEEN 18 AND 64;
SELECT COUNT(*) AS "under 45" FROM patients WHERE age < 45;
SELECT COUNT(*) AS "65 and over" FROM patients WHERE age >= 65;

-- Groups
SELECT state, COUNT(*) AS patients FROM patients GROUP BY state;
SELECT age, COUNT(*) AS patients FROM patients GROUP BY age;
SELECT diagnosis, COUNT(*) AS patients FROM patients GROUP BY diagnosis;
SELECT age, COUNT(*) AS diabetic FROM patients WHERE diagnosis = 'diabetes' GROUP BY age;

-- Conditions on several columns
SELECT COUNT(*) AS "any diagnosis" FROM patients WHERE diagnosis <> 'none';
SELECT COUNT(*) AS "asthma, under 18" FROM patients WHERE diagnosis = 'asthma' AND age < 18;
SELECT COUNT(*) AS "hypertension, 45 and over" FROM patients WHERE diagnosis = 'hypertension' AND age >= 45;
SELECT COUNT(*) AS "NY or NJ, 65 and over" FROM patients WHERE state IN ('NY', 'NJ') AND age >= 65;

-- Sums of amounts
SELECT SUM(charge) AS charges FROM patients;
SELECT diagnosis, SUM(charge) AS charges FROM patients GROUP BY diagnosis;

-- Weighted sums
SELECT COUNT(*) FILTER (WHERE state = 'NY') / 19.4 + COUNT(*) FILTER (WHERE state = 'NJ') / 9.3
     + COUNT(*) FILTER (WHERE state = 'CA') / 39.0 AS "per million, NY + NJ + CA" FROM patients;
SELECT SUM(CASE diagnosis WHEN 'diabetes' THEN 2.5 WHEN 'hypertension' THEN 1 WHEN 'asthma' THEN 1.5 END)
    AS "expected visits" FROM patients;
