"""Measures the agent against its peers and its lower bounds: `make bench`."""
