"""Device ids of device plugins, in their many formats → the GPU or MIG instance that an id means.

GPU-<uuid>                a whole GPU
MIG-<uuid>                a MIG instance
MIG-GPU-<uuid>/<gi>/<ci>  the same, before driver R470
0                         a GPU by its index
GPU-<uuid>-3              one of HAMi's shares of a GPU; GPU-<uuid>-0 also a whole GPU of our plugin (split count 1)
nvidia0/gi3/vgpu1         GKE: GPU, then instance and replica if there are any
any of these with ::<n>   a replica: time slicing or MPS

And the names by which DRA drivers publish devices on a node; N is the minor number of the GPU:

gpu-N                        NVIDIA: a whole GPU
gpu-N-mig-1g10gb-19-4        NVIDIA: an instance by profile, number of the profile, and first memory slice
gpu-N-mig-19-4-1             the same before release 25.12: number of the profile, first slice, how many slices
hami-gpu-N                   HAMi: a GPU that is shared
"""

import re

from msgspec import Struct

from vgpuscope.model.quantity import DeviceUUID


class DeviceRef(Struct, frozen=True, kw_only=True):
    """The device that an id means; all None if the format of the id is unknown."""

    uuid: DeviceUUID | None = None  # of the physical GPU
    mig: DeviceUUID | None = None
    index: int | None = None  # of the GPU
    gpu_instance: int | None = None
    compute_instance: int | None = None
    replica: bool = False  # one of several equal parts: others may hold the same device at the same time
    share: int | None = None  # the number of a share that HAMi's plugin or ours advertises; it names no GPU


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NUMBER = r"[0-9]{1,9}"
_ID = re.compile(
    rf"""(?: (?P<mig_old> MIG-(?P<parent>GPU-{_UUID})/(?P<old_gi>{_NUMBER})/(?P<old_ci>{_NUMBER}) )
           | (?: (?P<uuid>GPU-{_UUID}) | (?P<mig>MIG-{_UUID}) ) (?:-(?P<share>{_NUMBER}))?
           | (?P<index>{_NUMBER})
           | nvidia(?P<gke>{_NUMBER}) (?:/gi(?P<gi>{_NUMBER}))? (?P<vgpu>/vgpu{_NUMBER})?
         ) (?P<replica>::{_NUMBER})?""",
    re.VERBOSE,
)


class DraName(Struct, frozen=True, kw_only=True):
    """The device a DRA driver means by a name."""

    minor: int
    hami: bool = False
    profile: str | None = None  # as in the name: 1g10gb
    profile_id: int | None = None  # None: a whole GPU
    start: int | None = None


_DRA = re.compile(
    rf"""(?P<hami>hami-)? gpu-(?P<minor>{_NUMBER})
       | gpu-(?P<parent>{_NUMBER})-mig-(?P<profile>[0-9a-z-]*[a-z][0-9a-z-]*)-(?P<id>{_NUMBER})-(?P<start>{_NUMBER})
       | gpu-(?P<old_parent>{_NUMBER})-mig-(?P<old_id>{_NUMBER})-(?P<old_start>{_NUMBER})-{_NUMBER}""",
    re.VERBOSE,
)


def parse_dra_name(name: str) -> DraName | None:
    """The device that a name of HAMi's or NVIDIA's DRA driver means; None for names of another format."""
    found = _DRA.fullmatch(name)
    if found is None:
        return None
    part = found.groupdict()
    return DraName(
        minor=int(part["minor"] or part["parent"] or part["old_parent"]),
        hami=part["hami"] is not None,
        profile=part["profile"],
        profile_id=_number(part["id"] or part["old_id"]),
        start=_number(part["start"] or part["old_start"]),
    )


def dra_profile(profile: str) -> str:
    """A MIG profile as names of NVIDIA's DRA driver have it, without dots: 1g.10gb+me is 1g10gb-me."""
    return re.sub("[^a-z0-9-]", "-", profile.lower().replace(".", "")).strip("-")


def parse_device_id(id: str) -> DeviceRef:  # noqa: A002 - the kubelet's word for it
    """The device that an id means; an empty DeviceRef if the format is unknown."""
    found = _ID.fullmatch(id)
    if found is None:
        return DeviceRef()
    part = found.groupdict()
    return DeviceRef(
        uuid=part["uuid"] or part["parent"],
        mig=part["mig"] or part["mig_old"],
        index=_number(part["index"] or part["gke"]),
        gpu_instance=_number(part["old_gi"] or part["gi"]),
        compute_instance=_number(part["old_ci"]),
        replica=bool(part["replica"] or part["vgpu"]),
        share=_number(part["share"]),
    )


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
