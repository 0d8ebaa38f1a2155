"""How long a sample waits for its sources, and how often the slow ones are read."""

from msgspec import Struct

from vgpuscope.model.quantity import Seconds


class SampleWaits(Struct, frozen=True, kw_only=True):
    """The times of one sample that are not settings; tests on a busy machine are more patient."""

    regions: Seconds = 2.0  # regions are files on the node's own disk, so a longer read means that the disk hangs
    profiling: Seconds = 0.25  # for a round of profiling, which takes milliseconds
    host: Seconds = 2.0  # for the files of cgroups and of the node
    host_every: Seconds = 5.0  # counters lose nothing in between, and each reading costs a file per value


WAITS = SampleWaits()
