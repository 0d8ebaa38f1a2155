"""Keeps the annotations of the node: its GPUs for HAMi's scheduler, the faults for operators, the old handshake."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from vgpuscope.config import PluginConfig
from vgpuscope.formats.hami.handshake import reported
from vgpuscope.formats.hami.register import NVIDIA_HANDSHAKE, NVIDIA_REGISTER, encode_registration, registered_devices
from vgpuscope.formats.kube.faults import FAULTS, decode_faults, encode_faults
from vgpuscope.logic.plugin.health import HealthTracker
from vgpuscope.logic.plugin.registration import registered_before, registrations
from vgpuscope.model.errors import AnnotationMalformed, ScopeError
from vgpuscope.model.plugin import GpuFault, NodeNotes
from vgpuscope.model.quantity import DeviceUUID, Seconds, UnixTime
from vgpuscope.runtime.log import OnChange, error_fields, fields
from vgpuscope.services.plugin.cluster import ClusterSide

log = logging.getLogger(__name__)

_EVERY: Seconds = 30.0
_EVERY_WITH_FAULTS: Seconds = 10.0  # an operator may clear one
_RETRY: Seconds = 5.0


class NodeAnnotations:
    """What this node says about its GPUs."""

    def __init__(
        self,
        config: PluginConfig,
        cluster: ClusterSide,
        tracker: HealthTracker,
        *,
        cleared: Callable[[], None],
        count: Callable[[ScopeError], None],
        clock: Callable[[], UnixTime] = time.time,
        undo: Callable[[], Awaitable[bool]] | None = None,
        retry: Seconds = _RETRY,
    ) -> None:
        """`cleared` is called when an operator has cleared a fault, or one from before a restart was found, or a GPU.

        `undo` is called with each look at the node, and after the pause `retry` again while it returns False.
        """
        self._config, self._cluster, self._tracker = config, cluster, tracker
        self._cleared, self._count, self._clock, self._undo, self._retry = cleared, count, clock, undo, retry
        self._written: dict[DeviceUUID, GpuFault] | None = None  # the faults in the annotation; None: not read yet
        self._changed = asyncio.Event()
        self._tell = OnChange(log)
        self.looked = asyncio.Event()  # GPUs and faults from before a restart are known
        self.patches = 0

    def changed(self) -> None:
        """Look at the node now: the health of a GPU has changed, or there is something to undo."""
        self._changed.set()

    async def run(self) -> None:
        """Write when something changes; look at the node from time to time."""
        while True:
            self._changed.clear()
            try:
                await self.update()
                pause = _EVERY_WITH_FAULTS if self._tracker.faults else _EVERY
            except ScopeError as e:
                self._count(e)
                self._tell.tell("node", e.code, level=logging.WARNING, message="node not registered", **error_fields(e))
                pause = self._retry
            else:
                self._tell.forget("node")
            if self._undo is not None and not await self._undo():
                pause = self._retry
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def update(self) -> None:
        """One look at the node, and one change if it is needed."""
        notes = await self._cluster.node()
        self._take_faults(notes)
        if not self.looked.is_set():
            self._take_gpus(notes)
        self.looked.set()
        wanted: dict[str, str | None] = {}
        states = self._tracker.states
        if states:
            config = self._config
            found = registrations(
                states,
                split=config.split_count,
                memory_scaling=config.memory_scaling,
                core_scaling=config.core_scaling,
                memory_unless_known=config.memory_if_unknown,
            )
            wanted[NVIDIA_REGISTER] = encode_registration(found)
            if config.handshake:
                wanted[NVIDIA_HANDSHAKE] = reported(self._clock())
        faults = {fault.gpu: fault for fault in self._tracker.faults}
        wanted[FAULTS] = encode_faults(faults.values())
        changes = {key: text for key, text in wanted.items() if notes.annotations.get(key) != text}
        if changes:
            await self._cluster.annotate_node(changes)
        self._written = faults
        if NVIDIA_REGISTER in changes:
            self.patches += 1
            log.info("node registered", extra=fields(gpus=len(states), healthy=sum(s.healthy for s in states)))

    def _take_gpus(self, notes: NodeNotes) -> None:
        """Take the GPUs that were registered before a restart: one that the driver does not report is lost."""
        text = notes.annotations.get(NVIDIA_REGISTER, "")
        devices, wrong = registered_devices({NVIDIA_REGISTER: text}, {}, notes.name)
        for reason in wrong:
            self._count(AnnotationMalformed(reason))
            log.warning("registration from before is malformed", extra=fields(node=notes.name, err=reason))
        if self._tracker.expect(registered_before(devices, memory_scaling=self._config.memory_scaling)):
            self._cleared()

    def _take_faults(self, notes: NodeNotes) -> None:
        """Take faults from before a restart, and drop those that an operator has removed since they were written."""
        try:
            there = decode_faults(notes.annotations.get(FAULTS))
        except AnnotationMalformed as e:  # it is written again: a typing error clears nothing
            self._count(e)
            log.warning("annotation of faults is malformed", extra=fields(node=notes.name, **error_fields(e)))
            return
        if self._written is None:
            self._tracker.restore(there)
            if there:
                self._cleared()
            return
        removed = self._written.keys() - {fault.gpu for fault in there}
        current = {fault.gpu: fault for fault in self._tracker.faults}
        same = [gpu for gpu in removed if current.get(gpu) == self._written[gpu]]  # a newer XID is a new fault
        for fault in self._tracker.clear(same):
            log.info("fault cleared by an operator", extra=fields(gpu=fault.gpu, xid=fault.xid))
            self._cleared()
