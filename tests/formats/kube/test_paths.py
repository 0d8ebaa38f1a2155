"""Paths of objects at the API server."""

import pytest

from vgpuscope.formats.kube.paths import ObjectRef, list_path


@pytest.mark.parametrize(
    ("one", "path"),
    [
        (ObjectRef("Pod", "train", "ml", "uid-1"), "/api/v1/namespaces/ml/pods/train"),
        (ObjectRef("Node", "n/1"), "/api/v1/nodes/n%2F1"),
        (
            ObjectRef("Lease", "l", "ml", api_version="coordination.k8s.io/v1"),
            "/apis/coordination.k8s.io/v1/namespaces/ml/leases/l",
        ),
        (
            ObjectRef("NetworkPolicy", "p", "ml", api_version="networking.k8s.io/v1"),
            "/apis/networking.k8s.io/v1/namespaces/ml/networkpolicies/p",
        ),
        (
            ObjectRef("Ingress", "i", "ml", api_version="networking.k8s.io/v1"),
            "/apis/networking.k8s.io/v1/namespaces/ml/ingresses/i",
        ),
        (ObjectRef("Gateway", "g", "ml", api_version="a.io/v1"), "/apis/a.io/v1/namespaces/ml/gateways/g"),
    ],
)
def test_a_path_names_the_object(one, path):
    assert one.path == path
    assert list_path(one.api_version, one.kind, namespace=one.namespace) == path.rpartition("/")[0]
