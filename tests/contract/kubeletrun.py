"""A stand-in kubelet whose PodResources API answers from the objects of a real API server.

It lists what a kubelet lists: for each container, all devices of each claim that it uses, by driver, pool and name. A
kubelet does not look at requests or at admin access.
"""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from tests.controlplane import ControlPlane, Object, pod
from tests.formats.test_podresources import pb


def user(name: str, **claims: str) -> Object:
    """A pod whose containers use claims: main="c", or main="c/request"."""
    made = pod(name, containers=tuple(claims))
    names = sorted({one.partition("/")[0] for one in claims.values()})
    made["spec"]["resourceClaims"] = [{"name": f"its-{one}", "resourceClaimName": one} for one in names]
    for container in made["spec"]["containers"]:
        claim, _, request = claims[container["name"]].partition("/")
        uses = {"name": f"its-{claim}"} | ({"request": request} if request else {})
        container["resources"] = {"claims": [uses]}
    return made


def kubelets_answer(cluster: ControlPlane, node: str) -> "pb.ListPodResourcesResponse":
    claims = {one["metadata"]["name"]: one for one in cluster.list("resourceclaims", namespace="ml")}
    bound = [one for one in cluster.list("pods", namespace="ml") if one["spec"].get("nodeName") == node]
    return pb.ListPodResourcesResponse(pod_resources=[_pod_resources(one, claims) for one in bound])


def _pod_resources(found: Object, claims: dict[str, Object]) -> "pb.PodResources":
    names = {one["name"]: one["resourceClaimName"] for one in found["spec"].get("resourceClaims", ())}
    extended = found["status"].get("extendedResourceClaimStatus", {})
    mapped = {one["containerName"] for one in extended.get("requestMappings", ())}

    def used(container: Object) -> list[str]:
        own = [names[use["name"]] for use in container["resources"].get("claims", ())]
        return [*own, extended["resourceClaimName"]] if container["name"] in mapped else own

    containers = [
        pb.ContainerResources(name=one["name"], dynamic_resources=[_claimed(claims[name]) for name in used(one)])
        for one in found["spec"]["containers"]
    ]
    return pb.PodResources(name=found["metadata"]["name"], namespace="ml", containers=containers)


def _claimed(claim: Object) -> "pb.DynamicResource":
    allocation = claim["status"].get("allocation") or {"devices": {"results": []}}
    resources = [
        pb.ClaimResource(
            driver_name=one["driver"], pool_name=one["pool"], device_name=one["device"], share_id=one.get("shareID")
        )
        for one in allocation["devices"]["results"]
    ]
    return pb.DynamicResource(claim_name=claim["metadata"]["name"], claim_namespace="ml", claim_resources=resources)


@contextmanager
def kubelet(cluster: ControlPlane, node: str) -> Iterator[str]:
    """The path of a PodResources socket that answers with the cluster of the moment."""
    method = grpc.unary_unary_rpc_method_handler(
        lambda _, __: kubelets_answer(cluster, node),
        request_deserializer=pb.ListPodResourcesRequest.FromString,
        response_serializer=pb.ListPodResourcesResponse.SerializeToString,
    )
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})
    server.add_generic_rpc_handlers((handlers,))
    with tempfile.TemporaryDirectory() as short:  # a socket's path has at most 107 bytes
        path = str(Path(short) / "kubelet.sock")
        server.add_insecure_port(f"unix://{path}")
        server.start()
        try:
            yield path
        finally:
            server.stop(None).wait()
