"""A second release beside one with policies: Helm says what is missing, before anything is denied.

The release that is there has the extender, the other one the device plugin, in another namespace.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chart.cluster import Cluster
from tests.chart.helmrun import CHART, helm

pytestmark = pytest.mark.real
FIRST, SECOND = ("first", "releases-a"), ("second", "releases-b")
EXTENDER, PLUGIN = "releases-a/first-vgpuscope-extender", "releases-b/second-vgpuscope-plugin"


def values(component: str, *accounts: str, **more: Any) -> dict[str, Any]:
    only = {name: {"enabled": name == component} for name in ("extender", "plugin")}
    off = {name: {"enabled": False} for name in ("agent", "analyzer", "cluster")}
    return off | only | {"admission": {"enabled": True, "accounts": list(accounts)}} | more


@pytest.fixture
def there(cluster: Cluster) -> Iterator[Cluster]:
    """The first release, which names nobody else."""
    cluster.namespace(SECOND[1])
    cluster.install(*FIRST, values("extender"))
    yield cluster
    for release, namespace in (FIRST, SECOND):
        helm("uninstall", release, "--namespace", namespace, "--kubeconfig", cluster.plane.kubeconfig)


def refusal(cluster: Cluster, wanted: dict[str, Any]) -> str:
    """What Helm says against the second release."""
    place = ("--namespace", SECOND[1], "--kubeconfig", cluster.plane.kubeconfig)
    done = helm("install", SECOND[0], str(CHART), *place, values=wanted)
    assert done.returncode, "it was installed"
    return done.stderr


def upgrade(cluster: Cluster, wanted: dict[str, Any]) -> None:
    cluster.helm("upgrade", FIRST[0], str(CHART), namespace=FIRST[1], values=wanted)


def test_both_releases_have_to_name_the_accounts_of_the_other(there):
    said = refusal(there, values("plugin", EXTENDER))
    assert "the release releases-a/first would deny" in said
    assert f"admission.accounts={{{PLUGIN}}}" in said
    upgrade(there, values("extender", PLUGIN))
    said = refusal(there, values("plugin"))
    assert "this release would deny" in said
    assert f"admission.accounts={{{EXTENDER}}}" in said
    there.install(*SECOND, values("plugin", EXTENDER))
    notes = there.notes(*SECOND)
    assert EXTENDER.replace("/", ":") in notes
    assert f"admission.accounts={{{PLUGIN}}}" in notes


def test_a_second_extender_needs_the_keys_of_the_first(there):
    said = refusal(there, values("extender", EXTENDER))
    assert "the release releases-a/first has an extender, too" in said
    assert "extender.seal.secret" in said


def test_a_release_that_writes_no_assignments_is_not_concerned(there):
    there.install(*SECOND, values("none", agent={"enabled": True}, monitor={"enabled": True}))
