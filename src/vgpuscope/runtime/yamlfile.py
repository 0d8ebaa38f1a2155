"""YAML files of settings, read strictly."""

from typing import Any

import yaml

from vgpuscope.model.errors import ConfigInvalid

LIMIT = 1024 * 1024
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Strict(_Loader):  # type: ignore[misc]
    """Rejects a duplicate key: YAML would silently keep the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


def read(path: str, *, error: type[ConfigInvalid] = ConfigInvalid, hint: str | None = None) -> bytes:
    """The bytes of a settings file; the error says why it cannot be read."""
    try:
        with open(path, "rb") as file:
            content = file.read(LIMIT + 1)
    except OSError as e:
        raise error(f"{path}: {e.strerror or e}", hint=hint) from e
    if len(content) > LIMIT:
        raise error(f"{path}: larger than {LIMIT} bytes, so it is not a file of settings")
    return content


def mapping(content: bytes, *, path: str, error: type[ConfigInvalid] = ConfigInvalid) -> dict[str, Any]:
    """The top-level keys; an empty file has none. The error names file, line and reason."""
    try:
        value = yaml.load(content, Loader=_Strict)  # noqa: S506 - a subclass of the safe loader
    except yaml.MarkedYAMLError as e:
        line = f":{e.problem_mark.line + 1}" if e.problem_mark else ""
        raise error(f"{path}{line}: {e.problem or 'not YAML'}") from e
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise error(f"{path}: not YAML ({type(e).__name__})") from e
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise error(f"{path}: expected keys and values, found {_kind(value)}")
    return section(value, at=path, error=error)


def section(value: object, *, at: str, error: type[ConfigInvalid] = ConfigInvalid) -> dict[str, Any]:
    """A mapping whose keys are text; a missing value is an empty mapping."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise error(f"{at}: expected keys and values, found {_kind(value)}")
    for key in value:
        if not isinstance(key, str):
            raise error(f"{at}: key {key!r} is not text")
    return value


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else "a list" if isinstance(value, list) else repr(value)
