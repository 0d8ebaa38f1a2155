"""What the auditor found, as JSON and on a terminal."""
