"""Keeps runs that wait for a person, and lets them go on."""
