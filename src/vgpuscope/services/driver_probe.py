"""The driver, read on its own thread; a GPU in which a call hangs is left behind."""

import logging

from vgpuscope.model.device import DeviceReading
from vgpuscope.model.errors import DriverHung
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import fields
from vgpuscope.runtime.probe import Probe
from vgpuscope.sources.node.nvml.driver import Nvml

log = logging.getLogger(__name__)


class DriverProbe:
    """Reads the driver with a deadline. One thread at a time may call it."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._probe = self._new_probe()

    def read(self, deadline: Seconds) -> DeviceReading:
        """What the driver reports; raises its errors, and DriverHung after the deadline."""
        return self._probe.read(deadline)

    def left_behind(self) -> bool:
        """Abandon the GPU in which a call hangs, if the call belongs to one GPU, so that the other GPUs are read."""
        if self._probe.stuck_seconds is None:
            return False
        call = self._nvml.doing
        gpu = self._nvml.leave_behind()
        if gpu is None:
            return False
        self._probe = self._new_probe()
        values = {"gpu": gpu, "call": call, "error_code": DriverHung.code}
        log.warning("driver call hangs; this GPU is skipped, the others are read", extra=fields(**values))
        return True

    def _new_probe(self) -> Probe[DeviceReading]:
        return Probe("nvml", self._nvml.read, doing=lambda: self._nvml.doing or "a call", error=DriverHung)
