"""Steps of a flow over few rows."""
