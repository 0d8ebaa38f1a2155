"""The devices of a node, as the plugins of all vendors register them in its annotations.

    json      an array of objects; zero and false are omitted, so a device without `health` is unhealthy
    text      `id,count,MiB,cores,type,numa,health[,index,mode]:` for each device: NVIDIA until v2.7.1, Hygon, Iluvatar
    metax     Metax' own array of sGPUs
    enflame   an object with the slices of each GPU, and the profiles that slices can form
    capacity  no annotation: GPUs are counted from the resources that the kubelet advertises

The first character distinguishes json from text, since NVIDIA has written both.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from vgpuscope.knowledge.vendors import VENDORS, DerivedGpus, Vendor
from vgpuscope.model.allocation import MigProfile, RegisteredDevice
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.plugin import GpuRegistration
from vgpuscope.model.plugin import PluginMigProfile as OfferedProfile
from vgpuscope.model.quantity import MIB, Bytes, DeviceUUID

CORDON = "hami.io/device-cordon"
PAIR_SCORES = "hami.io/node-nvidia-score"
NVIDIA_REGISTER, NVIDIA_HANDSHAKE = "hami.io/node-nvidia-register", "hami.io/node-handshake"
_MOST = 1024  # devices of one vendor on one node; a longer annotation is malformed
_INT32 = 2**31 - 1

Name = Annotated[str, Meta(max_length=253)]
Id = Annotated[str, Meta(min_length=1, max_length=253)]
Amount = Annotated[int, Meta(ge=0, le=_INT32)]
Signed = Annotated[int, Meta(ge=-_INT32 - 1, le=_INT32)]
Numa = Annotated[int, Meta(ge=-1, le=_INT32)]


def physical_memory(model: str) -> Bytes | None:
    """The memory of the GPU itself, if the model name states it: NVIDIA A100-SXM4-80GB."""
    found = _GIGABYTES.search(model)
    return int(found[1]) * 1024 * MIB if found else None


_GIGABYTES = re.compile(r"(?<![0-9A-Za-z.])([0-9]{1,4})GB(?![0-9A-Za-z])")


def registered_devices(
    annotations: Mapping[str, str], capacity: Mapping[str, int], node_name: str
) -> tuple[tuple[RegisteredDevice, ...], tuple[str, ...]]:
    """A node's devices, and for each vendor whose annotation cannot be read, the reason."""
    found: dict[str, RegisteredDevice] = {}
    reasons: list[str] = []
    for vendor in VENDORS:
        try:
            devices = _of_vendor(vendor, annotations=annotations, capacity=capacity, node=node_name)
        except AnnotationMalformed as e:
            reasons.append(str(e))
            continue
        twice = [device.id for device in devices if found.setdefault(device.id, device) is not device]
        if twice:
            reasons.append(f"{vendor.word}: {len(twice)} devices are registered twice, {twice[0]} among them")
    cordoned = _listed(annotations.get(CORDON, "")) & found.keys()
    for id_ in cordoned:
        found[id_] = msgspec.structs.replace(found[id_], cordoned=True)
    return tuple(found.values()), tuple(reasons)


class _PairScores(Struct):
    uuid: Id
    score: dict[str, Annotated[int, Meta(ge=-_INT32, le=_INT32)]] = {}


_pair_scores = msgspec.json.Decoder(Annotated[list[_PairScores], Meta(max_length=_MOST)])


def pair_scores(annotations: Mapping[str, str]) -> dict[DeviceUUID, dict[DeviceUUID, int]]:
    """How well the GPUs of a node are linked, pair by pair; empty if the node does not report it."""
    text = annotations.get(PAIR_SCORES, "").strip()
    if not text:
        return {}
    try:
        found = _pair_scores.decode(text)
    except (ValueError, RecursionError) as e:
        raise AnnotationMalformed(f"{PAIR_SCORES}: {_short(str(e))}") from e
    return {intern(one.uuid): {intern(other): score for other, score in one.score.items()} for one in found}


def _listed(text: str) -> set[str]:
    return {item.strip() for item in text.split(",")}


def _of_vendor(
    vendor: Vendor, *, annotations: Mapping[str, str], capacity: Mapping[str, int], node: str
) -> Iterable[RegisteredDevice]:
    if vendor.gpus is not None:
        return list(_counted(vendor, vendor.gpus, capacity=capacity, node=node)) if capacity else ()
    key = next((key for key in vendor.registers if key in annotations), None)
    text = annotations[key].strip() if key else ""
    if key is None or not text:
        return ()
    try:
        match vendor.registration:
            case "metax":
                return _metax(vendor, text)
            case "enflame":
                return _enflame(vendor, text, node)
            case _:
                return _json_or_text(vendor, text)
    except (ValueError, RecursionError) as e:  # msgspec's errors are ValueErrors
        raise AnnotationMalformed(f"{key}: {_short(str(e))}") from e


def _short(reason: str) -> str:
    return reason if len(reason) <= 200 else reason[:199] + "…"


# --- json -------------------------------------------------------------------------------------------------------------


class _MigPlacement(Struct, forbid_unknown_fields=True):
    start: Amount = 0
    size: Amount = 0


class _MigProfile(Struct, forbid_unknown_fields=True):
    name: Name
    memory: Amount = msgspec.field(name="memoryMB", default=0)
    cores: Amount = msgspec.field(name="core", default=0)
    slices: Amount = msgspec.field(name="sliceCount", default=0)
    placements: Annotated[list[_MigPlacement], Meta(max_length=64)] | None = None


class _Device(Struct, forbid_unknown_fields=True):
    id: Id
    index: Amount = 0
    count: Signed = 0
    devmem: Signed = 0
    devcore: Signed = 0
    type: Name = ""
    numa: Signed = 0
    mode: Name = ""
    health: bool = False
    profiles: Annotated[list[_MigProfile], Meta(max_length=64)] | None = msgspec.field(name="migProfiles", default=None)
    devicevendor: object = None  # this and the following are of other releases, and are not read
    custominfo: object = None
    migtemplate: object = None
    devicepairscore: object = None


_DeviceList: TypeAlias = Annotated[list[_Device], Meta(max_length=_MOST)]
_devices: msgspec.json.Decoder[list[_Device]] = msgspec.json.Decoder(_DeviceList)
_objects = msgspec.json.Decoder(list[dict[str, object]])


def _from_json(text: str) -> list[_Device]:
    """The devices; as with Go's decoder, keys may have any case, null is zero, and unknown keys are skipped."""
    try:
        return _devices.decode(text)
    except msgspec.ValidationError:
        found = _as_go_reads(_objects.decode(text), _Device, _MigProfile, _MigPlacement)
        return msgspec.convert(found, _DeviceList)


def _as_go_reads(value: object, kind: type[Struct], *inner: type[Struct]) -> object:
    """Objects with the keys of a struct, and the objects in them with those of the next."""
    if isinstance(value, list):
        return [_as_go_reads(item, kind, *inner) for item in value]
    if not isinstance(value, dict):
        return value
    names = {name.lower(): name for name in kind.__struct_encode_fields__}
    read = {names[key.lower()]: item for key, item in value.items() if item is not None and key.lower() in names}
    return {name: _as_go_reads(item, *inner) for name, item in read.items()} if inner else read


def _json_or_text(vendor: Vendor, text: str) -> list[RegisteredDevice]:
    """A device with an amount below zero is registered without that amount, and is not healthy."""
    found = _from_json(text) if text.startswith("[") else _from_text(text)
    return [
        RegisteredDevice(
            id=intern(one.id),
            vendor=vendor.word,
            index=one.index,
            slots=max(one.count, 0),
            memory=max(one.devmem, 0) * MIB,
            physical=physical_memory(one.type),
            cores=max(one.devcore, 0),
            type=intern(one.type),
            numa=one.numa,
            mode=intern(one.mode),
            healthy=one.health and min(one.count, one.devmem, one.devcore) >= 0,
            profiles=_profiles(one.profiles) if one.profiles else (),
        )
        for one in found
    ]


def _profiles(found: list[_MigProfile]) -> tuple[MigProfile, ...]:
    return tuple(
        MigProfile(
            name=intern(one.name),
            memory=one.memory * MIB,
            cores=one.cores,
            slices=one.slices,
            placements=tuple((place.start, place.size) for place in one.placements or () if place.size),
        )
        for one in found
    )


def encode_registration(gpus: Iterable[GpuRegistration]) -> str:
    """The text that HAMi's own device plugin writes for NVIDIA since v2.8: its order of fields, zero values omitted."""
    return msgspec.json.encode([_fields(gpu) for gpu in gpus]).decode()


def _fields(gpu: GpuRegistration) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": gpu.id,
        "index": gpu.index,
        "count": gpu.slots,
        "devmem": gpu.memory,
        "devcore": gpu.cores,
        "type": gpu.type,
        "numa": gpu.numa,
        "mode": gpu.mode,
        "migProfiles": [_profile_fields(profile) for profile in gpu.profiles],
        "health": gpu.healthy,
    }
    return {name: value for name, value in fields.items() if value}


def _profile_fields(profile: OfferedProfile) -> dict[str, object]:
    return {
        "name": profile.name,
        "memoryMB": profile.memory,
        "core": profile.cores,
        "sliceCount": profile.slices,
        "placements": [{"start": start, "size": size} for start, size in profile.placements],
    }


# --- text -------------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"-?[0-9]{1,10}")
_BOOLEANS = {  # as Go reads them
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _from_text(text: str) -> list[_Device]:
    if text.count(":") > _MOST:
        raise ValueError(f"more than {_MOST} devices")
    return [_from_fields(device) for device in text.split(":") if device]


def _from_fields(device: str) -> _Device:
    fields = device.split(",", 9)
    if len(fields) == 7:
        fields += ["0", "hami-core"]
    numbers = [fields[i] for i in (1, 2, 3, 5, 7)] if len(fields) == 9 else [""]
    if not all(map(_NUMBER.fullmatch, numbers)) or fields[6] not in _BOOLEANS:
        raise ValueError(f"{device[:80]!r} is not id,count,memory,cores,type,numa,health[,index,mode]")
    count, devmem, devcore, numa, index = map(int, numbers)
    return msgspec.convert(
        {
            "id": fields[0],
            "index": index,
            "count": count,
            "devmem": devmem,
            "devcore": devcore,
            "type": fields[4],
            "numa": numa,
            "mode": fields[8],
            "health": _BOOLEANS[fields[6]],
        },
        _Device,
    )


# --- Metax ------------------------------------------------------------------------------------------------------------


class _Sgpu(Struct, rename={"vram": "totalVRam", "slots": "totalDevCount", "cores": "totalCompute", "id": "uuid"}):
    id: Id
    slots: Amount = 0
    cores: Amount = 0
    vram: Amount = 0
    numa: Numa = 0
    healthy: bool = False


_sgpus = msgspec.json.Decoder(Annotated[list[_Sgpu], Meta(max_length=_MOST)])


def _metax(vendor: Vendor, text: str) -> list[RegisteredDevice]:
    """HAMi numbers the GPUs by their position in the array."""
    return [
        RegisteredDevice(
            id=intern(one.id),
            vendor=vendor.word,
            index=index,
            slots=one.slots,
            memory=one.vram * MIB,
            cores=one.cores,
            type=vendor.word,
            numa=one.numa,
            mode="",
            healthy=one.healthy,
        )
        for index, one in enumerate(_sgpus.decode(text))
    ]


# --- Enflame ----------------------------------------------------------------------------------------------------------


class _Drs(Struct):
    index: str | int | None = None
    capacity: str | int = 0


class _DrsNode(Struct):
    devices: Annotated[list[_Drs], Meta(max_length=_MOST)]
    profiles: dict[str, object]


_drs_node = msgspec.json.Decoder(_DrsNode)
_PROFILE = re.compile(r"([0-9]{1,4})g\.([0-9]{1,6})gb")


def _enflame(vendor: Vendor, text: str, node: str) -> list[RegisteredDevice]:
    """A GPU has the memory of its largest profile, and as many slots as slices."""
    found = _drs_node.decode(text)
    sizes = [int(profile[2]) for profile in map(_PROFILE.fullmatch, found.profiles) if profile]
    if not sizes:
        raise ValueError("no profile like 3g.20gb")
    devices = []
    for place, one in enumerate(found.devices):
        index = _amount(one.index if one.index not in {None, ""} else place)
        devices.append(
            RegisteredDevice(
                id=intern(f"{node}-enflame-drs-{index}"),
                vendor=vendor.word,
                index=index,
                slots=_amount(one.capacity),
                memory=max(sizes) * 1024 * MIB,
                cores=100,
                type=vendor.word,
                mode="",
                healthy=True,
            )
        )
    return devices


def _amount(value: object) -> int:
    if not _NUMBER.fullmatch(str(value)) or not 0 <= int(str(value)) <= _INT32:
        raise ValueError(f"{str(value)[:80]!r} is no amount")
    return int(str(value))


# --- capacity ---------------------------------------------------------------------------------------------------------


def _counted(
    vendor: Vendor, gpus: DerivedGpus, *, capacity: Mapping[str, int], node: str
) -> Iterator[RegisteredDevice]:
    counted = capacity.get(gpus.counted_in, 0)
    number = -(-counted // gpus.per_gpu)
    if number > _MOST:
        raise AnnotationMalformed(f"{gpus.counted_in}: {counted} of it would be more than {_MOST} GPUs")
    slots, cores, memory = gpus.slots, gpus.cores, gpus.memory
    if vendor.core_unit == "mask" and number > 0:
        slots = min(capacity.get(vendor.core or "", 0) // number, 32)
        cores = (1 << slots) - 1
    if vendor.memory and vendor.memory_unit and counted > 0:
        in_mib = capacity.get(vendor.memory, 0) * (vendor.memory_unit // MIB) * gpus.per_gpu // counted
        memory = min(in_mib, _INT32) * MIB
    for index in range(number):
        yield RegisteredDevice(
            id=intern(f"{node}-{gpus.name}-{index}"),
            vendor=vendor.word,
            index=index,
            slots=slots,
            memory=memory,
            cores=cores,
            type=vendor.word,
            numa=index * gpus.numa_nodes // number,
            mode="",
            healthy=True,
        )
