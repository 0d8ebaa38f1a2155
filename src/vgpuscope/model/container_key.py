"""The name of a container on a node."""

from msgspec import Struct

from vgpuscope.model.quantity import PodUID


class ContainerKey(Struct, frozen=True, kw_only=True, order=True, cache_hash=True):
    """Which container. Names are empty where no source of pods could tell them; the UID is always there for a pod."""

    namespace: str = ""
    pod: str = ""
    pod_uid: PodUID = ""
    container: str = ""
