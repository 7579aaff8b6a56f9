"""What is computed from answers: expressions over them, ratios and quantiles with their intervals. Knows no data."""
