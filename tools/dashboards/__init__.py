"""The Grafana dashboards, as tables: `boards/` says what is shown, `draw.py` how. Not shipped."""
