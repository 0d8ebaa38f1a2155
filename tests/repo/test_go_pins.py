"""What is built from the Go modules has one version of Kubernetes, and no second build of the same package."""

import re

from tests.paths import REPOSITORY

TOOLS = REPOSITORY / "tools"


def test_the_node_has_the_modules_of_the_control_plane():
    """The kubelet is of the API server's version; equal versions are compiled once."""
    assert _differing("cluster/node", "controlplane") == {}


def test_coredns_has_the_client_of_kubernetes():
    """Its client-go is the most that is compiled for it, and is there already."""
    differing = _differing("cluster/dns", "cluster/node")
    assert [module for module in differing if module.startswith(("k8s.io/", "sigs.k8s.io/"))] == []


def _differing(one: str, other: str) -> dict[str, tuple[str, str]]:
    a, b = _modules(one), _modules(other)
    assert a.keys() & b.keys()
    return {module: (a[module], b[module]) for module in a.keys() & b.keys() if a[module] != b[module]}


def _modules(directory: str) -> dict[str, str]:
    """The versions that a go.mod requires; its replacements name the same ones."""
    required = (TOOLS / directory / "go.mod").read_text().split("replace (")[0]
    return dict(re.findall(r"^\s*(?:require )?(\S+\.\S+/\S+) (v\S+)", required, re.MULTILINE))
