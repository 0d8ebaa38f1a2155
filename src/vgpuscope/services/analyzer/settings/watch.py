"""Settings change while the analyzer runs: by their file, by SIGHUP, or by the API."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from vgpuscope.config import tell_deprecated
from vgpuscope.model.errors import ConfigInvalid, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.runtime.log import error_fields, fields
from vgpuscope.services.analyzer.settings.settings import Settings, changed

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0  # seconds between two checks of the settings file


class SettingsWatch:
    """Makes one change of the settings at a time."""

    def __init__(
        self,
        settings: Settings,
        *,
        changed: Callable[[Mapping[str, tuple[str, str]]], Awaitable[None]],
        failed: Callable[[ScopeError], None],
        every: Seconds = LOOK_EVERY,
    ) -> None:
        """`changed` gets the values before and after, by path; `failed` counts settings that were rejected.

        `every` is the time between two checks of the settings file.
        """
        self._settings, self._changed, self._failed, self._every = settings, changed, failed, every
        self._hung_up, self._changing = asyncio.Event(), asyncio.Lock()

    def hang_up(self) -> None:
        """Read the settings again soon."""
        self._hung_up.set()

    async def forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._hung_up.wait()
            async with self._changing:
                if await asyncio.to_thread(self._settings.file_changed) or self._hung_up.is_set():
                    self._hung_up.clear()
                    await self._reload()

    async def _reload(self) -> None:
        """Read the settings again; invalid settings are logged and ignored."""
        before = self._settings.loaded
        try:
            late = await asyncio.to_thread(self._settings.reload)
        except ConfigInvalid as e:
            self._failed(e)
            log.warning("settings rejected", extra=error_fields(e))
            return
        log.info("settings reloaded")
        tell_deprecated(self._settings.loaded.deprecated)
        if late:
            log.warning("settings take effect after a restart", extra=fields(settings=", ".join(late)))
        await self._changed(changed(before, self._settings.loaded))

    async def update(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Change settings by their paths; what was changed, with the new values."""
        async with self._changing:
            before = self._settings.loaded
            done = await asyncio.to_thread(self._settings.update, changes)
        log.info("settings changed", extra=fields(**{path.replace(".", "_"): value for path, value in done.items()}))
        await self._changed(changed(before, self._settings.loaded))
        return done
