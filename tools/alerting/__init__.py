"""The alerts and recording rules that we ship: tables from which `make gen` writes rule files and their documentation."""
