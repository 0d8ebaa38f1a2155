"""The analyzer's settings while it runs: re-read when the file changes, changed by the API, always all or nothing."""

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from msgspec import structs

from vgpuscope import config as configuration
from vgpuscope.config import Config, Loaded, Setting
from vgpuscope.config.analyzer import DEFAULT_PROMETHEUS
from vgpuscope.model.errors import BodyInvalid, ConfigInvalid, ReadOnly
from vgpuscope.model.wording import nearest, sentences
from vgpuscope.runtime import yamlfile

Signature = tuple[int, int, int] | None
# Settings as a request gives them, by name. They stay free, because the settings loader decodes them as it decodes the
# file: a wrong one is answered with its path, the most similar name and the reason why it cannot be changed.
Section = dict[str, Any]
Sections = dict[str, Section]

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
    "reclaim",
    "notify",
    "kube",
    "activity",
    "logging",
    "log",
)
# changeable while running: how GPUs are judged, but not which source is read or who has access
_CHANGEABLE = frozenset({"scoring", "thresholds", "verdict", "scheduler", "gpu_defaults"})
_CHANGEABLE_TOO = frozenset({"prometheus.time_window_min", "prometheus.step", "ai.enabled"})
CHANGEABLE = tuple(
    setting for setting in configuration.SETTINGS if setting.section in _CHANGEABLE or setting.path in _CHANGEABLE_TOO
)
TRIABLE = frozenset({"scoring", "thresholds", "verdict", "gpu_defaults"})  # how one reading is judged
# only read when the process starts
AT_START = frozenset(
    f"analyzer.{name}" for name in ("listen", "history", "keep_results", "keep_hours", "keep_days", "web_config_file")
) | {"log.format", "reclaim.keep_history"}
# who has access: never removed while running, because a file may be empty or cut off
_PROTECTING = tuple(
    f"analyzer.{name}"
    for name in ("api_token", "api_token_role", "api_token_namespaces", "protect_reads", "proxy_user_header")
)


class Settings:
    """The settings in effect; an invalid change is rejected as a whole. Only one thread at a time may call."""

    def __init__(
        self,
        *,
        flags: Mapping[str, object],
        environ: Mapping[str, str],
        file: str | None,
        check: Callable[[Config], object] = lambda _: None,
    ) -> None:
        """`check` raises ConfigInvalid for errors that the settings alone do not show."""
        self._flags, self._environ, self._check = dict(flags), dict(environ), check
        self._file = configuration.named_file(file, environ)
        self._updates: dict[str, Any] = {}
        self._read = self._looked = self._signature()
        self._loaded = configuration.load(flags={}, environ={}, file=configuration.NO_FILE)  # the defaults
        self._loaded = self._load(self._updates)

    @property
    def config(self) -> Config:
        return self._loaded.config

    @property
    def loaded(self) -> Loaded:
        """The settings in effect, and where each came from."""
        return self._loaded

    def tried(self, changes: Mapping[str, Any]) -> Config:
        """The settings with these changes, which do not take effect; ConfigInvalid or BodyInvalid if they cannot."""
        for path in changes:
            _check_changeable(path)
            if path.partition(".")[0] not in TRIABLE:
                raise BodyInvalid(f"{path}: has no effect on one reading", hint=f"Try {', '.join(sorted(TRIABLE))}.")
        return self._load({**self._updates, **changes}).config

    def with_policy(self, policy: Mapping[str, Any]) -> Loaded:
        """The settings with these keys of `reclaim`, which do not take effect; ConfigInvalid names the key."""
        changes = {f"reclaim.{key}": value for key, value in policy.items()}
        known = [setting.path for setting in configuration.SETTINGS if setting.section == "reclaim"]
        for path in changes:
            if path not in known:
                raise ConfigInvalid(
                    f"{path[:80]}: unknown setting",
                    hint=sentences(nearest(path, known), "A policy has the keys of the section reclaim."),
                )
        return self._load({**self._updates, **changes})

    def file_changed(self) -> bool:
        """Whether the file has changed since it was last read, and has not changed since the last check.

        An editor may still be writing it, and half a file can look like a whole one.
        """
        before, self._looked = self._looked, self._signature()
        return self._looked not in (self._read, None) and self._looked == before

    def reload(self) -> tuple[str, ...]:
        """Read the file again; on ConfigInvalid the old settings stay. Returns changed settings that need a restart."""
        self._read = self._looked = self._signature()
        before, self._loaded = self._loaded, self._load(self._updates)
        return tuple(sorted(path for path in AT_START if before.value(path) != self._loaded.value(path)))

    def update(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change settings by path, all or none; returns the changed settings with the values in effect."""
        mode = self.config.analyzer.config_updates
        if mode == "refuse":
            raise ReadOnly("analyzer.config_updates is refuse", hint="Change the file; it is read again automatically.")
        for path in changes:
            _check_changeable(path)
        loaded = self._load({**self._updates, **changes})
        if mode == "file":
            self._check_weight(changes)
            self._persist(changes)
            self._loaded = self._load(self._updates)
        else:
            self._updates |= changes
            self._loaded = loaded
        return {path: self._loaded.value(path) for path in changes}

    def _load(self, updates: Mapping[str, Any]) -> Loaded:
        loaded = configuration.load(
            flags=self._flags,
            environ=self._environ,
            file=self._file or configuration.NO_FILE,
            sections=SECTIONS,
            changes=updates,
        )
        loaded = structs.replace(loaded, config=_with_source(loaded.config))
        self._check(loaded.config)
        for path in _PROTECTING:
            if self._loaded.origins[path] != "default" and not _given(loaded, path):
                raise ConfigInvalid(
                    f"{path}: missing, and it protects the analyzer", hint="Restart it without the key."
                )
        return loaded

    def _check_weight(self, changes: Mapping[str, Any]) -> None:
        """Reject settings given by a flag or environment variable, because those take precedence over the file."""
        for path in changes:
            origin = self._loaded.origins[path]
            if origin.startswith(("env ", "flag")):
                raise BodyInvalid(
                    f"{path}: set by {origin}, which takes precedence over the file", hint="Change it where it is set."
                )

    def _persist(self, changes: Mapping[str, Any]) -> None:
        """Replace the file by a new one, so that no reader sees half a file; comments in it are lost."""
        if self._file is None:
            raise ReadOnly("analyzer.config_updates is file, but there is no file", hint="Start with --config FILE.")
        content = yamlfile.mapping(yamlfile.read(self._file), path=self._file)
        for path, value in changes.items():
            section, _, name = path.partition(".")
            content[section] = {**yamlfile.section(content.get(section), at=section), name: value}
        try:
            _replace(self._file, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        except OSError as e:
            raise ReadOnly(f"{self._file} cannot be written: {e.strerror or e}", hint=_WRITABLE) from e
        self._read = self._looked = self._signature()

    def _signature(self) -> Signature:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _with_source(config: Config) -> Config:
    """If no setting names a source, it is gpu-oour's default. Doctor asks only a Prometheus that is named."""
    own = config.analyzer
    if config.prometheus.url is not None or own.targets or own.discover_services:
        return config
    prometheus = structs.replace(config.prometheus, url=DEFAULT_PROMETHEUS)
    return structs.replace(config, prometheus=prometheus)


def by_path(sections: Sections) -> dict[str, Any]:
    """The settings of a request by their paths, such as thresholds.idle."""
    return {f"{section}.{name}": value for section, found in sections.items() for name, value in found.items()}


def changed(before: Loaded, after: Loaded) -> dict[str, tuple[str, str]]:
    """The settings whose values differ, with both values as text; secrets are masked."""
    own = (setting for setting in configuration.SETTINGS if setting.section in SECTIONS)
    pairs = ((setting, before.value(setting.path), after.value(setting.path)) for setting in own)
    return {setting.path: (_told(setting, old), _told(setting, new)) for setting, old, new in pairs if old != new}


def _told(setting: Setting, value: object) -> str:
    return str(without_credentials(setting.shown(value)))


def without_credentials(value: Any) -> Any:
    """The value without the user, the password and the password parameter of URLs in it."""
    if isinstance(value, (list, tuple)):
        return [without_credentials(one) for one in value]
    return _CREDENTIALS.sub("…", value) if isinstance(value, str) else value


_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+(?=@)|(?<=password=)[^&\s]+", re.IGNORECASE)


_WRITABLE = "Mount it writable, or set analyzer.config_updates to memory."


def _given(loaded: Loaded, path: str) -> bool:
    return loaded.origins[path] != "default" and loaded.value(path) not in (None, "", ())


def _check_changeable(path: str) -> None:
    if path not in {setting.path for setting in configuration.SETTINGS}:
        near = nearest(path, [setting.path for setting in CHANGEABLE])
        raise ConfigInvalid(f"{path[:80]!r}: no such setting", hint=sentences(near, "GET /config lists all settings."))
    if path not in {setting.path for setting in CHANGEABLE}:
        raise BodyInvalid(f"{path}: cannot be changed while running", hint="Change the file or the environment.")


def _replace(path: str, text: str) -> None:
    directory = os.path.dirname(os.path.realpath(path))
    handle, beside = tempfile.mkstemp(dir=directory, prefix=".vgpuscope-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, os.stat(path).st_mode & 0o777)
        os.replace(beside, os.path.realpath(path))
    except OSError:
        os.unlink(beside)
        raise
