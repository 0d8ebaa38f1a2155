"""Which settings file is read: the one that is named, or config.yaml in the working directory, as in gpu-oour."""

import logging
import os
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from vgpuscope.catalog.deprecations import Deprecation
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.wording import nearest, sentences
from vgpuscope.runtime import yamlfile
from vgpuscope.runtime.log import fields

log = logging.getLogger(__name__)

FILE_VARIABLE: Final = "VGPUSCOPE_CONFIG"
WORKING_DIRECTORY: Final = "working directory"
USUAL: Final = "config.yaml"
NO_FILE: Final = "none"
_AVOID = f"Name another file with --config FILE ({FILE_VARIABLE}), or use --config {NO_FILE} to read no file."


class DeprecatedUse(NamedTuple):
    """A setting that was given under a deprecated name."""

    row: Deprecation
    said: str  # flag --ratio, env VGPUSCOPE_AGENT_RATIO, file config.yaml


class SettingsFile(NamedTuple):
    """The file that is read, and why this one."""

    path: str  # "none": no file
    by: str  # flag --config, env VGPUSCOPE_CONFIG, working directory
    deprecated: tuple[DeprecatedUse, ...] = ()  # settings under deprecated names, wherever they were given


def settings_file(flag: str | None, environ: Mapping[str, str], *, sections: Collection[str]) -> SettingsFile:
    """The file to read; ConfigInvalid when the one of the working directory was not written for this program."""
    if flag:
        return SettingsFile(flag, "flag --config")
    if named := environ.get(FILE_VARIABLE):
        return SettingsFile(named, f"env {FILE_VARIABLE}")
    if not os.path.isfile(USUAL):
        return SettingsFile(NO_FILE, "")
    path = os.path.abspath(USUAL)
    _check_ours(path, sections)
    return SettingsFile(path, WORKING_DIRECTORY)


def named_file(file: str | None, environ: Mapping[str, str]) -> str | None:
    """The path that a flag, or else the environment, names; None: no file is read."""
    path = file or environ.get(FILE_VARIABLE) or NO_FILE
    return None if path == NO_FILE else path


def tell_file(file: SettingsFile | None) -> None:
    """Log which file was read, as config.yaml is read without being named, and which settings are deprecated."""
    if file is not None and file.path != NO_FILE:
        log.info("settings read", extra=fields(file=file.path, named_by=file.by))
    tell_deprecated(file.deprecated if file is not None else ())


def tell_deprecated(uses: Collection[DeprecatedUse]) -> None:
    """Log a warning for each setting that was given under a deprecated name."""
    for row, said in uses:
        log.warning(
            "setting deprecated",
            extra=fields(
                setting=row.name,
                given_by=said,
                use=row.instead or None,
                removed_in=row.removed_in,
                removed_on=row.removed_on.isoformat(),
            ),
        )


def _check_ours(path: str, sections: Collection[str]) -> None:
    """The file was found, not named, so it may belong to another program in the same directory."""
    try:
        content = yamlfile.mapping(yamlfile.read(path), path=path)
    except ConfigInvalid as e:
        raise ConfigInvalid(f"{e} (found in the working directory)", hint=_AVOID) from e
    for name in content:
        if name not in sections:
            raise ConfigInvalid(
                f"{path} in the working directory is not a settings file of vgpuscope: unknown section {name[:80]!r}",
                hint=sentences(nearest(name, sections), _AVOID),
            )
