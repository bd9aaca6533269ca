"""Flow matching: noise, and the steps that lead from it to data."""
