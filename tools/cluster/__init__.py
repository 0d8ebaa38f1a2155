"""A real Kubernetes of one node on this machine, in namespaces of its own: `make e2e`, and the tests of tests/e2e."""
