"""Reads the public surfaces of a running system and compares their numbers."""
