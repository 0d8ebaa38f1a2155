"""The device requests of each container of a pod, by vendor."""

from collections.abc import Iterator

from vgpuscope.knowledge.vendors import VENDORS, Vendor
from vgpuscope.model.allocation import ContainerRequest, PodState
from vgpuscope.model.cluster import DeviceRequest


def device_requests(pod: PodState) -> tuple[DeviceRequest, ...]:
    """One request for each container and requested vendor, in the order of the containers.

    Resources other than a vendor's count, memory or cores (a MIG profile) are in `ContainerRequest.amounts` only.
    """
    return tuple(request for one in pod.containers for request in _of_container(one))


def _of_container(one: ContainerRequest) -> Iterator[DeviceRequest]:
    for vendor in VENDORS:
        if not one.amounts.keys().isdisjoint(vendor.resources):
            yield _request(one, vendor)


def _request(one: ContainerRequest, vendor: Vendor) -> DeviceRequest:
    memory = one.amounts.get(vendor.memory) if vendor.memory else None
    return DeviceRequest(
        container_index=one.index,
        container=one.name,
        init=one.init,
        vendor=vendor.word,
        count=one.amounts.get(vendor.count),
        memory=memory * vendor.memory_unit if memory is not None and vendor.memory_unit else None,
        memory_percentage=one.amounts.get(vendor.memory_percentage) if vendor.memory_percentage else None,
        cores=one.amounts.get(vendor.core) if vendor.core else None,
    )
