"""A release, up to the push: RELEASING.md."""
