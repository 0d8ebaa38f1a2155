"""The auditor on the demo, while it runs: nothing contradicts itself, also when an agent has died."""
