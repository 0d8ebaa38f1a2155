"""How the tests are run: docs/testing.md."""
