"""What the chart allows its services is what they use, by the API server's audit log of the whole run."""

import pytest

from tests.chart.audit import granted, requests, used
from tests.e2e.product import NAMESPACE, Product
from tools.cluster import layout

pytestmark = pytest.mark.e2e

# what this run gives no occasion for; tests/chart/test_rights.py does
ELSEWHERE = {
    *{("agent", "resourceclaims", "get"), ("agent", "resourceslices", "list")},  # a container with a ResourceClaim
    *{("extender", kind, "get") for kind in ("nodes", "pods")},  # somebody else patched it at the same moment
    *{("cluster", kind, "get") for kind in ("statefulsets", "jobs", "jobsets", "leaderworkersets", "rayclusters")},
    *{("cluster", kind, "get") for kind in ("configurations", "revisions", "services")},  # Knative's
}


def test_every_right_is_used(scheduling: Product) -> None:
    roles = scheduling.cluster.get(
        *("clusterroles,roles,clusterrolebindings,rolebindings", "-A", "-l", "app.kubernetes.io/name=vgpuscope")
    )
    unused, all_rights = set(), set()
    for service in ("agent", "cluster", "extender", "plugin"):
        asked = requests(layout.AUDIT, f"vgpuscope-{service}", NAMESPACE)
        rights = granted(roles, f"vgpuscope-{service}")
        assert rights, service
        all_rights |= {(service, right.resource, right.verb) for right in rights}
        unused |= {(service, right.resource, right.verb) for right in rights if not used(right, asked)}
    assert sorted(unused - ELSEWHERE) == []
    assert sorted(ELSEWHERE - all_rights) == [], "rights that the chart does not grant"


def test_no_request_was_forbidden(scheduling: Product) -> None:
    """Of the services that doctor does not run in; it tries out what its caller may do."""
    for service in ("agent", "cluster", "extender", "plugin"):
        asked = requests(layout.AUDIT, f"vgpuscope-{service}", NAMESPACE)
        assert asked, service
        assert [request for request in asked if request.code == 403] == []
