"""The settings in effect → rows with type, bounds, default, value and origin; secrets have no value."""

from typing import Any, get_args, get_origin

import msgspec
from msgspec import Meta

from vgpuscope.config import SETTINGS, Loaded, Setting
from vgpuscope.model.console.settings import SettingList, SettingRow, SettingSource, SettingType
from vgpuscope.services.analyzer.settings.settings import AT_START, CHANGEABLE, SECTIONS, Settings, without_credentials

_SOURCES: dict[str, SettingSource] = {"API": "changed", "flag": "flag", "env": "env", "file": "file"}
_TYPES: dict[Any, SettingType] = {bool: "boolean", int: "integer", float: "number", str: "text"}
_CHANGEABLE = frozenset(setting.path for setting in CHANGEABLE)


def setting_list(settings: Settings) -> SettingList:
    """Every setting of the analyzer, in the order of the documentation."""
    updates = settings.config.analyzer.config_updates
    rows = (
        _row(setting, settings.loaded, editable=updates != "refuse" and setting.path in _CHANGEABLE)
        for setting in SETTINGS
        if setting.section in SECTIONS
    )
    return SettingList(updates=updates, rows=tuple(rows))


def _row(setting: Setting, loaded: Loaded, *, editable: bool) -> SettingRow:
    value = loaded.value(setting.path)
    word, _, name = loaded.origins[setting.path].partition(" ")
    minimum, maximum, exclusive = _bounds(setting.type)
    return SettingRow(
        path=setting.path,
        section=setting.section,
        type=_type(setting),
        choices=setting.choices,
        minimum=minimum,
        maximum=maximum,
        exclusive_minimum=exclusive,
        default=None if setting.secret else msgspec.to_builtins(setting.default),
        default_text=setting.default_text,
        value=None if setting.secret else without_credentials(msgspec.to_builtins(value)),
        is_set=value not in (None, "", ()),
        secret=setting.secret,
        source=_SOURCES.get(word, "default"),
        source_name=name or None,
        editable=editable,
        needs_restart=setting.path in AT_START,
        description=setting.description,
        flag=setting.flag,
        env=setting.env,
    )


def _type(setting: Setting) -> SettingType:
    if setting.choices:
        return "choice"
    if setting.form == "duration":
        return "duration"
    inner = get_args(setting.type)[0]
    if get_origin(inner) is tuple:
        return "list"
    return next((_TYPES[part] for part in _inside(inner) if part in _TYPES), "text")


def _bounds(kind: Any) -> tuple[float | None, float | None, bool]:
    """Lowest and highest value, and whether the lowest itself is excluded."""
    found = [part for part in _inside(kind) if isinstance(part, Meta)]
    over = next((meta.gt for meta in found if meta.gt is not None), None)
    least = next((meta.ge for meta in found if meta.ge is not None), over)
    most = next((meta.le for meta in found if meta.le is not None), None)
    return least, most, over is not None


def _inside(kind: Any) -> list[Any]:
    """A type and all parts of it."""
    return [kind, *(inner for part in get_args(kind) for inner in _inside(part))]
