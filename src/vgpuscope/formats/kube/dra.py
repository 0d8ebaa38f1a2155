"""ResourceSlices and ResourceClaims of resource.k8s.io, as the API lists and watches them → GPUs and their holders.

v1, v1beta2 and v1beta1 are read by the same functions. In the fields read here they differ in one point: v1beta1 has
the parts of a device under `basic`. Names of attributes and capacities may have the driver's domain as a prefix
(`uuid`, or `gpu.nvidia.com/uuid`).

A device is a GPU if its driver's name contains "gpu" or a similar word, or if its UUID has NVIDIA's format. Slices
without GPUs and claims without devices are skipped.

A slice is identified by its name, a claim by its uid.
"""

import re
from collections.abc import Iterator, Mapping
from sys import intern
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from vgpuscope.formats.kube.lists import ObjectKind, ObjectPage, WatchEvent, decode_line, decode_page
from vgpuscope.formats.kube.quantity import whole_number
from vgpuscope.knowledge.dra_drivers import is_gpu_driver
from vgpuscope.model.dra import AllocatedClaim, ClaimedDevice, ClaimState, DraDevice, SliceState
from vgpuscope.model.errors import KubeUnreadable

T = TypeVar("T")

Name = Annotated[str, Meta(max_length=253)]  # Kubernetes allows no name longer than this


def decode_slices(data: bytes) -> ObjectPage[SliceState]:
    """The slices of a list that have GPUs; raises KubeUnreadable for anything but a list of slices."""
    return decode_page(_SLICES, data)


def decode_slice_event(line: bytes) -> WatchEvent[SliceState]:
    """The event in one line of a watch of slices; without an item if the slice has no GPUs."""
    return decode_line(_SLICES, line)


def decode_claims(data: bytes) -> ObjectPage[ClaimState]:
    """The claims of a list that hold devices; raises KubeUnreadable for anything but a list of claims."""
    return decode_page(_CLAIMS, data)


def decode_claim_event(line: bytes) -> WatchEvent[ClaimState]:
    """The event in one line of a watch of claims; without an item if the claim holds no devices."""
    return decode_line(_CLAIMS, line)


def decode_claim(data: bytes) -> AllocatedClaim:
    """The devices of one claim, none if it is not allocated; raises KubeUnreadable for anything but a claim."""
    try:
        found = _CLAIMS.decoder.decode(data)
    except (ValueError, RecursionError) as e:
        raise KubeUnreadable(f"claim: {e}") from e
    if found.kind not in {None, "ResourceClaim"}:
        raise KubeUnreadable(f"claim: expected a ResourceClaim, got {found.kind[:80]}")
    results = _results(found)
    return AllocatedClaim(
        devices=tuple(_claimed([one for one in results if not one.admin_access], [])),
        admin=tuple(_claimed([one for one in results if one.admin_access], [])),
    )


class _Metadata(Struct, rename="camel"):
    name: Name
    uid: Name = ""
    namespace: Name | None = None
    resource_version: str | None = None


# --- slices -----------------------------------------------------------------------------------------------------------


class _Attribute(Struct):
    string: str | None = None
    number: int | None = field(default=None, name="int")


class _Range(Struct):
    min: object = None


class _Policy(Struct, rename="camel"):
    """The allowed values of a request for a part of a capacity."""

    default: object = None
    valid_values: list[object] | None = None
    valid_range: _Range | None = None


class _Capacity(Struct, rename="camel"):
    value: object = None
    request_policy: _Policy | None = None


class _Counters(Struct, rename="camel"):
    counter_set: Name = ""
    counters: dict[str, object] | None = None


class _Taint(Struct):
    key: str = ""
    effect: str = ""


class _Basic(Struct, rename="camel"):
    attributes: dict[str, _Attribute] | None = None
    capacity: dict[str, _Capacity] | None = None
    consumes_counters: list[_Counters] | None = None
    allow_multiple_allocations: bool | None = None
    node_name: Name | None = None
    taints: list[_Taint] | None = None


class _Device(_Basic, rename="camel"):
    name: Name = ""
    basic: _Basic | None = None  # v1beta1


class _Pool(Struct):
    name: Name = ""
    generation: int = 0


class _SliceSpec(Struct, rename="camel"):
    driver: Name = ""
    pool: _Pool | None = None
    node_name: Name | None = None
    devices: list[_Device] | None = None


class _Slice(Struct):
    metadata: _Metadata
    kind: str | None = None
    spec: _SliceSpec | None = None


_GPU_UUID = ("GPU-", "MIG-")
_SICK = re.compile("health|xid|ecc|fault|fail|error|lost")
_REFUSING = {"NoSchedule", "NoExecute"}  # other effects, including future ones, are ignored
_MEMORY_SLICE = re.compile("memory-?[Ss]lice-?([0-9]{1,3})")  # memorySlice3 is a capacity, memory-slice-3 a counter
_FIRST_NUMBER = re.compile("[0-9]{1,6}")
_PCI = ("resource.kubernetes.io/pciBusID", "pciBusID", "pcieBusID", "pciAddr")
_CORES = ("cores", "millicores")
_MOST_SLOTS = 100  # if a driver sets no minimum for a claim: as if each took 1 % of a GPU


def _slice(found: _Slice, wrong: list[str]) -> SliceState | None:
    spec = found.spec or _SliceSpec()
    driver, all_gpus = intern(spec.driver), is_gpu_driver(spec.driver)
    devices = []
    for one in spec.devices or ():
        reader = _Reader(driver, one, wrong)
        if all_gpus or reader.text("uuid").startswith(_GPU_UUID):
            devices.append(_device(reader, node=intern(reader.device.node_name or spec.node_name or "")))
    if not devices and not all_gpus:
        return None
    pool = spec.pool or _Pool()
    return SliceState(
        name=found.metadata.name,
        driver=driver,
        pool=intern(pool.name),
        generation=pool.generation,
        devices=tuple(devices),
    )


class _Reader:
    """The attributes and capacities of one device, under their short names."""

    def __init__(self, driver: str, found: _Device, wrong: list[str]) -> None:
        self.name = found.name
        self.device: _Basic = found.basic or found
        self._attributes = _short(self.device.attributes, driver)
        self._capacity = _short(self.device.capacity, driver)
        self._wrong = wrong

    def text(self, *names: str) -> str:
        """The first of these attributes that is a string; "" if there is none."""
        for name in names:
            value = self._attributes.get(name)
            if value is not None and value.string and len(value.string) <= 253:
                return intern(value.string)
        return ""

    def number(self, *names: str) -> int | None:
        """The first of these attributes that is a number."""
        for name in names:
            value = self._attributes.get(name)
            if value is not None and value.number is not None:
                return value.number
        return None

    def capacity(self, *names: str) -> int:
        """The first of these capacities; 0 if there is none."""
        for name in names:
            found = self._capacity.get(name)
            if found is not None:
                return _amount(found.value, f"{self.name} {name}", self._wrong) or 0
        return 0


def _short(values: Mapping[str, T] | None, driver: str) -> Mapping[str, T]:
    """The same values, with names without the driver's domain."""
    if not values:
        return {}
    domain = f"{driver}/"
    if not [name for name in values if name.startswith(domain)]:  # the usual case
        return values
    return {name.removeprefix(domain): value for name, value in values.items()}


def _device(reader: _Reader, *, node: str) -> DraDevice:
    parent, uuid, kind = reader.text("parentUUID"), reader.text("uuid"), reader.text("type")
    part = bool(parent) or kind == "mig" or kind.endswith("partition")
    start, size = _memory_slices(reader.device) if part else (0, 0)
    healthy, cordoned = _state(reader.device)
    return DraDevice(
        name=intern(reader.name),
        gpu=_gpu(reader, parent or uuid),
        part=part,
        node=node,
        uuid=uuid,
        parent=parent,
        type=reader.text("productName", "model", "architecture"),
        profile=reader.text("profile", "partitionProfile"),
        index=_index(reader),
        numa=max(0, reader.number("resource.kubernetes.io/numaNode", "numaNode", "numa") or 0),
        memory=reader.capacity("memory", "addressableMemory"),
        cores=reader.capacity(*_CORES),
        processors=reader.capacity("multiprocessors", "computeUnits"),
        start=start,
        size=size,
        slots=_slots(reader.device),
        healthy=healthy,
        cordoned=cordoned,
    )


def _gpu(reader: _Reader, uuid: str) -> str:
    """What all parts of one GPU have in common: the counters they draw from, the GPU's UUID, or its PCI address."""
    counters = [one.counter_set for one in reader.device.consumes_counters or () if one.counter_set]
    return intern(counters[0] if counters else uuid or reader.text(*_PCI) or reader.name)


def _index(reader: _Reader) -> int:
    """The GPU's index: an attribute, or the first number in the name, as in gpu-2 and gpu-2-mig-1g10gb-19-4."""
    number = reader.number("index", "minor", "gpuIndex", "parentIndex", "parentMinor")
    if number is None:
        found = _FIRST_NUMBER.search(reader.name)
        number = int(found[0]) if found else 0
    return max(0, number)


def _memory_slices(device: _Basic) -> tuple[int, int]:
    """The first memory slice of a partition and their number: drivers name them in its capacities or counters."""
    names = [*(device.capacity or ()), *(name for one in device.consumes_counters or () for name in one.counters or ())]
    slices = {int(found[1]) for name in names if name[:6] == "memory" and (found := _MEMORY_SLICE.fullmatch(name))}
    return (min(slices), len(slices)) if slices else (0, 0)


def _slots(device: _Basic) -> int:
    """How many claims fit if each requests the allowed minimum."""
    if not device.allow_multiple_allocations:
        return 1
    fits = [fit for one in (device.capacity or {}).values() if (fit := _fits(one))]
    return min(fits, default=_MOST_SLOTS)


def _fits(capacity: _Capacity) -> int:
    policy = capacity.request_policy
    total = whole_number(capacity.value)
    if policy is None or not total:
        return 0
    bounds = [policy.valid_range.min] if policy.valid_range else policy.valid_values or [policy.default]
    least = min((amount for bound in bounds if (amount := whole_number(bound))), default=0)
    return min(total // least, _MOST_SLOTS) if least > 0 else 0


def _state(device: _Basic) -> tuple[bool, bool]:
    """(healthy, cordoned). A taint keeps new claims away; only its key shows whether the GPU's health is the reason."""
    if not device.taints:
        return True, False
    keys = [taint.key for taint in device.taints if taint.effect in _REFUSING]
    sick = any(_SICK.search(key) for key in keys)
    return not sick, bool(keys) and not sick


# --- claims -----------------------------------------------------------------------------------------------------------


class _Result(Struct, rename="camel"):
    request: str = ""
    driver: Name = ""
    pool: Name = ""
    device: Name = ""
    admin_access: bool | None = None
    consumed_capacity: dict[str, object] | None = None


class _Results(Struct):
    results: list[_Result] | None = None


class _Expression(Struct):
    key: str = ""
    operator: str = ""
    values: list[Name] | None = None


class _Term(Struct, rename="camel"):
    match_fields: list[_Expression] | None = None


class _NodeSelector(Struct, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _Allocation(Struct, rename="camel"):
    devices: _Results | None = None
    node_selector: _NodeSelector | None = None


class _Reference(Struct):
    resource: str = ""
    uid: Name = ""


class _ClaimStatus(Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: list[_Reference] | None = None


class _Claim(Struct):
    metadata: _Metadata
    kind: str | None = None
    status: _ClaimStatus | None = None


def _claim(found: _Claim, wrong: list[str]) -> ClaimState | None:
    status, meta = found.status or _ClaimStatus(), found.metadata
    devices = tuple(_claimed([one for one in _results(found) if not one.admin_access], wrong))
    if not devices:
        return None
    if not meta.uid:
        wrong.append("it has no uid")
        return None
    return ClaimState(
        uid=meta.uid,
        namespace=intern(meta.namespace or "default"),
        name=meta.name,
        node=_node(status.allocation.node_selector if status.allocation else None),
        devices=devices,
        pods=tuple(sorted({one.uid for one in status.reserved_for or () if one.resource == "pods" and one.uid})),
    )


def _results(found: _Claim) -> list[_Result]:
    """The devices allocated to a claim. The claim does not hold those with admin access: that uses no capacity."""
    status = found.status or _ClaimStatus()
    if status.allocation is None or status.allocation.devices is None:
        return []
    return status.allocation.devices.results or []


def _claimed(results: list[_Result], wrong: list[str]) -> Iterator[ClaimedDevice]:
    for one in results:
        consumed = _short(one.consumed_capacity, one.driver)
        memory = consumed.get("memory")
        cores = next((value for name in _CORES if (value := consumed.get(name)) is not None), None)
        yield ClaimedDevice(
            driver=intern(one.driver),
            pool=intern(one.pool),
            device=intern(one.device),
            memory=None if memory is None else _amount(memory, f"{one.device} memory", wrong),
            cores=None if cores is None else _amount(cores, f"{one.device} cores", wrong),
            request=intern(one.request),
        )


def _node(selector: _NodeSelector | None) -> str:
    """The node, if the selector allows exactly one by name."""
    for term in (selector and selector.node_selector_terms) or ():
        for one in term.match_fields or ():
            if one.key == "metadata.name" and one.operator == "In" and one.values and len(one.values) == 1:
                return intern(one.values[0])
    return ""


def _amount(value: object, what: str, wrong: list[str]) -> int | None:
    amount = whole_number(value)
    if amount is None or amount < 0:
        wrong.append(f"{what[:253]}: {str(value)[:80]!r} is no whole number")
        return None
    return amount


_SLICES = ObjectKind[SliceState]("ResourceSlice", msgspec.json.Decoder(_Slice), _slice, known_by="name")
_CLAIMS = ObjectKind[ClaimState]("ResourceClaim", msgspec.json.Decoder(_Claim), _claim)
