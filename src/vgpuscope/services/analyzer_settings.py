"""The analyzer's settings while it runs: read again when their file changes, changed by the API, never half."""

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import yaml

from vgpuscope import config as configuration
from vgpuscope.config import Config, Loaded
from vgpuscope.model.errors import BodyInvalid, ConfigInvalid, ReadOnly
from vgpuscope.runtime import yamlfile

SECTIONS = (
    "analyzer",
    "prometheus",
    "scoring",
    "thresholds",
    "verdict",
    "scheduler",
    "gpu_defaults",
    "ai",
    "control",
    "logging",
    "log",
)
# what may be changed while running: how is judged, not whom to ask or who may ask
_CHANGEABLE = frozenset({"scoring", "thresholds", "verdict", "scheduler", "gpu_defaults"})
_CHANGEABLE_TOO = frozenset({"prometheus.time_window_min", "prometheus.step", "ai.enabled"})


class Settings:
    """The settings in effect; a change that is not good as a whole changes nothing."""

    def __init__(self, *, flags: Mapping[str, object], environ: Mapping[str, str], file: str | None) -> None:
        self._flags, self._environ = dict(flags), dict(environ)
        self._file = file or environ.get(configuration.FILE_VARIABLE) or None
        self._updates: dict[str, Any] = {}
        self._seen = self._signature()
        self._loaded = self._load(self._updates)

    @property
    def config(self) -> Config:
        return self._loaded.config

    def file_changed(self) -> bool:
        """Whether the file is another one than when it was last read."""
        return self._signature() != self._seen

    def reload(self) -> None:
        """Read the file again; ConfigInvalid leaves everything as it was."""
        self._seen = self._signature()
        self._loaded = self._load(self._updates)

    def update(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change settings by path, all or none; what was changed, with the values in effect."""
        mode = self.config.analyzer.config_updates
        if mode == "refuse":
            raise ReadOnly("analyzer.config_updates is refuse", hint="Change the file; it is read again by itself.")
        for path in changes:
            _check_changeable(path)
        if changes.get("ai.enabled"):
            raise BodyInvalid("ai.enabled: this release does not ask a language model", hint="Leave it false.")
        loaded = self._load({**self._updates, **changes})
        if mode == "file":
            self._persist(changes)
        self._updates |= changes
        self._loaded = loaded
        return {path: loaded.value(path) for path in changes}

    def _load(self, updates: Mapping[str, Any]) -> Loaded:
        return configuration.load(
            flags={**self._flags, **updates}, environ=self._environ, file=self._file, sections=SECTIONS
        )

    def _persist(self, changes: Mapping[str, Any]) -> None:
        """Write the file anew, beside the old one first, so that nobody reads a half; comments in it are lost."""
        if self._file is None:
            raise ReadOnly("analyzer.config_updates is file, but there is no file", hint="Start with --config FILE.")
        content = yamlfile.mapping(yamlfile.read(self._file), path=self._file)
        for path, value in changes.items():
            section, _, name = path.partition(".")
            content[section] = {**yamlfile.section(content.get(section), at=section), name: value}
        try:
            _replace(self._file, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        except OSError as e:
            raise ReadOnly(f"{self._file} cannot be written: {e.strerror or e}") from e
        self._seen = self._signature()

    def _signature(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _check_changeable(path: str) -> None:
    known = {setting.path for setting in configuration.SETTINGS}
    if path not in known:
        raise ConfigInvalid(f"{path[:80]}: no such setting", hint="GET /config shows what there is.")
    if path.partition(".")[0] not in _CHANGEABLE and path not in _CHANGEABLE_TOO:
        raise BodyInvalid(f"{path}: cannot be changed while running", hint="Change the file or the environment.")


def _replace(path: str, text: str) -> None:
    directory = os.path.dirname(os.path.abspath(path))
    handle, beside = tempfile.mkstemp(dir=directory, prefix=".vgpuscope-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, os.stat(path).st_mode & 0o777)
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
