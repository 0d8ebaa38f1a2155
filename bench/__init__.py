"""Measures the services against comparable programs and lower bounds: `make bench`."""
