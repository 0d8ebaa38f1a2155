"""Measures the services against their peers and their lower bounds: `make bench`."""
