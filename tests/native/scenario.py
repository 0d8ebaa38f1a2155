"""Writes the file that tells the stand-in driver (fakenvml.c) what to be.

    node = Scenario(tmp_path / "nvml")
    node.gpu(0).gpu(1, power=None).process(0, 4242, memory=2 << 30).sample(0, 4242, sm=35).write()
    node.lost(1).write()                 # from now on every call on GPU 1 answers GPU_IS_LOST
    node.heal(1).hang("nvmlDeviceGetPowerUsage", slot=0).write()

The library reads the file named by FAKENVML_STATE and sees each `write()` at its next call. Numbers are in NVML's own
units (mW, mJ, MHz, percent, bytes). A value of None is NOT_SUPPORTED. A *slot* names a GPU for good; its NVML index
is its rank among the slots present, so removing slot 0 moves the others up, as a reboot would.

In the file, one `key = value` per line:

    driver.version, nvml.version, cuda.version, driver.generation    a new generation is a reloaded driver
    gpu.<slot>.uuid|name|serial|pci|<number>                         see NUMBERS of fakenvml.c
    gpu.<slot>.process = PID KINDS MEMORY GI CI                      kinds of C, G, M; "-" is not available
    gpu.<slot>.sample  = PID STAMP SM MEM ENC DEC                    STAMP in µs since 1970, or now-MICROSECONDS
    gpu.<slot>.mig.<index>.uuid|name|<number>                        indices may have holes
    gpu.<slot>.gpm = 1, gpu.<slot>.[mig.<index>.]gpm.metric.<id>     GPM, in percent and MiB/s as the driver gives it
    [gpu.<slot>.[mig.<index>.]]call|sleep|hang.<symbol or *> = CODE|MILLISECONDS|1
    event = SEQUENCE SLOT XID [TYPE]                                 given once to event sets that were there before
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

GIB = 1 << 30

# codes of NVML that tests speak of
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 1, 2, 3, 4, 6
DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH, UNKNOWN = 9, 13, 15, 16, 18, 999

# an 80 GB GPU in good health, and the key each value is written under
GPU: dict[str, tuple[str, object]] = {
    "name": ("name", "NVIDIA A100-SXM4-80GB"),
    "serial": ("serial", "1650522000001"),
    "memory_total": ("memory.total", 80 * GIB),
    "memory_used": ("memory.used", 8 * GIB),
    "memory_free": ("memory.free", None),  # None: what is left
    "memory_reserved": ("memory.reserved", 1 * GIB),
    "utilization": ("utilization.gpu", 40),
    "memory_controller": ("utilization.memory", 20),
    "encoder": ("encoder", 5),
    "decoder": ("decoder", 6),
    "jpeg": ("jpeg", 7),
    "ofa": ("ofa", 8),
    "power": ("power", 250_000),
    "power_limit": ("power.limit", 400_000),
    "power_limit_max": ("power.limit.max", 450_000),
    "pcie_replays": ("pcie.replays", 3),
    "energy": ("energy", 5_000_000),
    "temperature": ("temperature", 55),
    "memory_temperature": ("temperature.memory", 62),
    "graphics_clock": ("clock.graphics", 1400),
    "sm_clock": ("clock.sm", 1410),
    "memory_clock": ("clock.memory", 1593),
    "video_clock": ("clock.video", 1275),
    "graphics_clock_max": ("clock.max.graphics", 1410),
    "sm_clock_max": ("clock.max.sm", 1410),
    "memory_clock_max": ("clock.max.memory", 1593),
    "video_clock_max": ("clock.max.video", 1290),
    "throttle": ("throttle", 0),
    "pcie_sent": ("pcie.tx", 1_000_000),
    "pcie_received": ("pcie.rx", 2_000_000),
    "ecc_corrected": ("ecc.corrected", 0),
    "ecc_uncorrected": ("ecc.uncorrected", 0),
    "remap_corrected": ("remap.corrected", 0),
    "remap_uncorrected": ("remap.uncorrected", 0),
    "remap_pending": ("remap.pending", 0),
    "remap_failure": ("remap.failure", 0),
    "fan": ("fan", None),
    "mig_mode": ("mig.mode", 0),
    "mig_pending": ("mig.pending", None),
    "mig_max": ("mig.max", None),
    "field_code": ("field.code", None),  # what a field value that is not there answers; None: NOT_SUPPORTED
    "samples_silent": ("samples.silent", None),  # 1: the size question answers SUCCESS and 0
    "samples_all": ("samples.all", None),  # 1: old samples come along whatever the caller asked
    "gpm": ("gpm", None),  # 1: the GPU has GPM (Hopper and later)
    "gpm_disturbs": ("gpm.disturbs", None),  # 1: sampling an instance makes memory queries of instances fail
    "uuid": ("uuid", None),  # None: made from the slot
    "minor": ("minor", None),
    "pci": ("pci", None),
}


def gpu_uuid(slot: int) -> str:
    """The UUID a slot has unless told otherwise."""
    return f"GPU-{slot:08x}-0000-4000-8000-000000000000"


def mig_uuid(slot: int, index: int) -> str:
    """The UUID an instance has unless told otherwise."""
    return f"MIG-{slot:08x}-{index:04x}-5000-8000-000000000000"


@dataclass
class _Gpu:
    values: dict[str, object]
    processes: list[str] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    instances: dict[int, dict[str, object]] = field(default_factory=dict)
    gpm: dict[str, object] = field(default_factory=dict)


class Scenario:
    """A node that a test describes; nothing is visible to the library before write()."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._driver: dict[str, object] = {"version": "550.54.15", "generation": 1}
        self._cuda = 12040
        self._gpus: dict[int, _Gpu] = {}
        self._faults: dict[str, int] = {}
        self._events: list[str] = []
        self._stamp = 0

    # -- what is there --------------------------------------------------------------------------------------------

    def driver(self, *, version: str = "550.54.15", cuda: int = 12040) -> Self:
        """Versions of driver and CUDA (12040 is 12.4)."""
        self._driver["version"], self._cuda = version, cuda
        return self

    def gpu(self, slot: int, **values: object) -> Self:
        """Adds a GPU in good health, or changes the given values (names of CARD) of one that is there."""
        unknown = values.keys() - GPU.keys()
        if unknown:
            raise TypeError(f"a card has no {sorted(unknown)}")
        if slot not in self._gpus:
            own = {"uuid": gpu_uuid(slot), "minor": slot, "pci": f"00000000:{slot + 1:02X}:00.0"}
            self._gpus[slot] = _Gpu({name: own.get(name, default) for name, (_, default) in GPU.items()})
        self._gpus[slot].values.update(values)
        return self

    def remove(self, slot: int) -> Self:
        """Takes the GPU out of the node."""
        del self._gpus[slot]
        return self

    def process(
        self,
        slot: int,
        pid: int,
        *,
        kinds: str = "C",
        memory: int | None = GIB,
        gi: int | None = None,
        ci: int | None = None,
    ) -> Self:
        """Lists a process on a GPU; kinds is any of C (compute), G (graphics), M (MPS)."""
        line = f"{pid} {kinds} {_or_dash(memory)} {_or_dash(gi)} {_or_dash(ci)}"
        self._gpus[slot].processes.append(line)
        return self

    def sample(
        self,
        slot: int,
        pid: int,
        *,
        sm: int,
        mem: int = 0,
        enc: int = 0,
        dec: int = 0,
        at: int | None = None,
        ago: int = 1000,
    ) -> Self:
        """What a process used: at µs since 1970, or else always `ago` µs before the call."""
        stamp = str(at) if at is not None else f"now{-ago:+d}"
        self._gpus[slot].samples.append(f"{pid} {stamp} {sm} {mem} {enc} {dec}")
        return self

    def idle(self, slot: int) -> Self:
        """Forgets what processes used."""
        self._gpus[slot].samples.clear()
        return self

    def empty(self, slot: int) -> Self:
        """Ends all processes of a GPU."""
        self._gpus[slot].processes.clear()
        return self.idle(slot)

    def mig(
        self,
        slot: int,
        index: int,
        *,
        gi: int,
        ci: int = 0,
        profile: str = "1g.10gb",
        slices: int = 1,
        ci_slices: int | None = None,
        memory_total: int = 10 * GIB,
        memory_used: int = GIB,
        memory_reserved: int = 0,
        uuid: str | None = None,
        placed: tuple[int, int] = (19, 0),
    ) -> Self:
        """Adds an instance at an index of the GPU's list, and turns MIG on. placed: its profile id and first slice."""
        one_gpu = self._gpus[slot]
        one_gpu.values["mig_mode"] = 1
        one_gpu.instances[index] = {
            "uuid": uuid or mig_uuid(slot, index),
            "name": f"{one_gpu.values['name']} MIG {profile}",
            "gi": gi,
            "ci": ci,
            "slices.gi": slices,
            "slices.ci": slices if ci_slices is None else ci_slices,
            "memory.total": memory_total,
            "memory.used": memory_used,
            "memory.reserved": memory_reserved,
            "profile.id": placed[0],
            "placement": placed[1],
        }
        return self

    def unmig(self, slot: int, index: int) -> Self:
        """Destroys an instance, which leaves a hole."""
        del self._gpus[slot].instances[index]
        return self

    def gpm(self, slot: int, values: dict[int, float], *, index: int | None = None) -> Self:
        """Turns GPM on, with these values by the number of their metric; of an instance if its index is given."""
        one_gpu = self._gpus[slot]
        one_gpu.values["gpm"] = 1
        place = one_gpu.gpm if index is None else one_gpu.instances[index]
        place |= {f"gpm.metric.{metric}": value for metric, value in values.items()}
        return self

    # -- what happens ---------------------------------------------------------------------------------------------

    def fail(self, call: str, code: int, *, slot: int | None = None, mig: int | None = None) -> Self:
        """A call ("*": all of them) answers with a code; 0 exempts it from a "*"."""
        self._faults[f"{_place(slot, mig)}call.{call}"] = code
        return self

    def slow(self, call: str, milliseconds: int, *, slot: int | None = None) -> Self:
        """A call takes its time."""
        self._faults[f"{_place(slot, None)}sleep.{call}"] = milliseconds
        return self

    def hang(self, call: str, *, slot: int | None = None) -> Self:
        """A call does not return until a later write() says otherwise."""
        self._faults[f"{_place(slot, None)}hang.{call}"] = 1
        return self

    def lost(self, slot: int) -> Self:
        """The GPU fell off the bus."""
        return self.fail("*", GPU_IS_LOST, slot=slot)

    def heal(self, slot: int | None = None) -> Self:
        """Ends all faults of a GPU, or all there are."""
        start = _place(slot, None)
        self._faults = {key: value for key, value in self._faults.items() if not key.startswith(start)}
        return self

    def reload(self) -> Self:
        """The driver was reloaded: every call is UNINITIALIZED until the next init, and old handles are dead."""
        self._driver["generation"] = int(str(self._driver["generation"])) + 1
        return self

    def xid(self, slot: int, number: int, *, event_type: int = 8) -> Self:
        """The GPU reports an XID."""
        self._events.append(f"{len(self._events) + 1} {slot} {number} {event_type}")
        return self

    # -- the file -------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The scenario as the library reads it."""
        lines = [f"driver.{key} = {value}" for key, value in self._driver.items()]
        lines += [f"nvml.version = 12.{self._driver['version']}", f"cuda.version = {self._cuda}"]
        for slot, one_gpu in self._gpus.items():
            lines += [f"gpu.{slot}.{key} = {value}" for key, value in _present(one_gpu.values)]
            lines += [f"gpu.{slot}.{key} = {value}" for key, value in one_gpu.gpm.items()]
            lines += [f"gpu.{slot}.process = {line}" for line in one_gpu.processes]
            lines += [f"gpu.{slot}.sample = {line}" for line in one_gpu.samples]
            for index, instance in one_gpu.instances.items():
                lines += [f"gpu.{slot}.mig.{index}.{key} = {value}" for key, value in instance.items()]
        lines += [f"{key} = {value}" for key, value in self._faults.items() if _slot_in(key, self._gpus)]
        lines += [f"event = {line}" for line in self._events]
        return "\n".join(lines) + "\n"

    def write(self) -> Self:
        """Replaces the file in one step; the library sees it at its next call."""
        part = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        part.write_text(self.text())
        # file times move in steps of some ms, and the library goes by them: give each version a time of its own
        self._stamp = max(self._stamp + 1, time.time_ns())
        os.utime(part, ns=(self._stamp, self._stamp))
        part.replace(self.path)
        return self


def _present(values: dict[str, object]) -> list[tuple[str, object]]:
    return [(GPU[name][0], value) for name, value in values.items() if value is not None]


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _place(slot: int | None, mig: int | None) -> str:
    if slot is None:
        return ""
    return f"gpu.{slot}." if mig is None else f"gpu.{slot}.mig.{mig}."


def _slot_in(key: str, gpus: dict[int, _Gpu]) -> bool:
    # a fault of a removed GPU must not bring the GPU back
    return not key.startswith("gpu.") or int(key.split(".")[1]) in gpus
