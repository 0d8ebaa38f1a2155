"""Parameters of an operation: a struct's fields → the allowed query and path parameters, and text → that struct.

class PodsQuery(Struct, frozen=True, kw_only=True):
    namespace: Annotated[str | None, Meta(description="Only pods of this namespace.")] = None
    limit: Annotated[int, Meta(ge=1, le=100, description="Most pods to send.")] = 10
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, inspect

from vgpuscope.model.errors import QueryInvalid
from vgpuscope.model.wording import instead, nearest

Q = TypeVar("Q", bound=Struct)
ParamType: TypeAlias = Literal["string", "integer", "number", "boolean"]

_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


class NoQuery(Struct, frozen=True):
    """The parameters of an operation that has none."""


class Param(Struct, frozen=True, kw_only=True):
    """One parameter, as a struct's field declares it."""

    name: str
    type: ParamType = "string"
    help: str = ""
    choices: tuple[str, ...] = ()
    pattern: str = ""  # a pattern for the whole text; `help` describes it in words
    many: bool = False  # several values, separated by commas or given one by one
    least: float | None = None
    most: float | None = None
    default: Any = None  # None: not given
    required: bool = False


def one_of(choices: Iterable[str], description: str) -> msgspec.Meta:
    """The allowed values of a text field, if they are known only at run time; otherwise use Literal."""
    return msgspec.Meta(description=description, extra_json_schema={"enum": list(choices)})


# --- a struct's fields → parameters -----------------------------------------------------------------------------------


def declared(query: type[Struct]) -> tuple[Param, ...]:
    """The parameters that a struct declares, in its order."""
    hints = get_type_hints(query, include_extras=True)
    fields = inspect.type_info(query).fields  # type: ignore[attr-defined]
    return tuple(_param(field, hints[field.name]) for field in fields)


def _param(field: Any, hint: Any) -> Param:
    extra, kind = _unwrapped(field.type)
    if many := hasattr(kind, "item_type"):
        more, kind = _unwrapped(kind.item_type)
        extra = {**more, **extra}
    return Param(
        name=field.encode_name,
        type=_TYPES[type(kind).__name__],
        help=extra.get("description", ""),
        choices=_literals(hint) or tuple(extra.get("enum", ())),
        pattern=(getattr(kind, "pattern", None) or "").removeprefix("^").removesuffix("$"),
        many=many,
        least=getattr(kind, "ge", None),
        most=getattr(kind, "le", None),
        default=None if field.default is msgspec.NODEFAULT else field.default,
        required=field.required,
    )


def _literals(hint: Any) -> tuple[str, ...]:
    """The values of the Literal in a type, in their declared order, because msgspec sorts them."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((found for part in get_args(hint) if (found := _literals(part))), ())


def _unwrapped(kind: Any) -> tuple[dict[str, Any], Any]:
    """The annotations of a type, and the type itself; an optional value has the type of the value."""
    extra: dict[str, Any] = {}
    while True:
        if hasattr(kind, "extra_json_schema"):
            extra = {**(kind.extra_json_schema or {}), **extra}
            kind = kind.type
        elif type(kind).__name__ == "UnionType":
            (kind,) = (one for one in kind.types if type(one).__name__ != "NoneType")
        else:
            return extra, kind


_TYPES: dict[str, ParamType] = {
    "StrType": "string",
    "LiteralType": "string",
    "IntType": "integer",
    "FloatType": "number",
    "BoolType": "boolean",
}


# --- text → the struct ------------------------------------------------------------------------------------------------


def read(
    query: type[Q], params: Sequence[Param], given: Iterable[tuple[str, str]], path: Mapping[str, str] | None = None
) -> Q:
    """The struct from a query string and a path; QueryInvalid names the wrong parameter."""
    values: dict[str, Any] = {name: _text(name, text) for name, text in (path or {}).items()}
    known = {param.name: param for param in params if param.name not in values}
    for name, text in given:
        param = known.get(name)
        if param is None:
            raise QueryInvalid(f"unknown parameter {name[:80]!r}", hint=instead(name, known) or _NO_PARAMS)
        if name in values and not param.many:
            raise QueryInvalid(f"{name} is given more than once")
        found = _value(param, text)
        values[name] = tuple(dict.fromkeys((*values[name], *found))) if name in values else found
    if missing := [param.name for param in params if param.required and param.name not in values]:
        raise QueryInvalid(f"{missing[0]} is required")
    return query(**values)


def _value(param: Param, text: str) -> Any:
    if param.many:
        return tuple(dict.fromkeys(_one(param, part) for part in text.split(",")))
    return _one(param, text)


def _text(name: str, text: str) -> str:
    """The text; QueryInvalid if it has a NUL, which no name contains and PostgreSQL does not accept."""
    if "\0" in text:
        raise QueryInvalid(f"{name} must not contain a NUL character (%00)")
    return text


def _one(param: Param, text: str) -> Any:
    _text(param.name, text)
    try:
        value = _CONVERT[param.type](text)
    except ValueError:
        raise QueryInvalid(f"{param.name} must be {_TYPE_WORDS[param.type]} (got {text[:80]!r})") from None
    if param.choices and value not in param.choices:
        raise _no_choice(param, text)
    if param.pattern and not re.fullmatch(param.pattern, text):
        raise QueryInvalid(f"{param.name} has an invalid format (got {text[:80]!r})", hint=param.help)
    if param.type in {"integer", "number"} and not _within(param, value):
        raise QueryInvalid(f"{param.name} must be {_range(param)} (got {text[:80]})")
    return value


_NO_PARAMS = "This path takes no parameters."
_TYPE_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
_LISTED = 12  # choices; if there are more, the message refers to the documentation


def _no_choice(param: Param, text: str) -> QueryInvalid:
    number = "one or more of" if param.many else "one of"
    choices = ", ".join(param.choices) if len(param.choices) <= _LISTED else "those that /docs lists"
    message = f"{param.name} must be {number} {choices} (got {text[:80]!r})"
    return QueryInvalid(message, hint=nearest(text, param.choices) or None)


def _within(param: Param, value: float) -> bool:
    return (param.least is None or value >= param.least) and (param.most is None or value <= param.most)


def _range(param: Param) -> str:
    if param.least is None:
        return f"at most {param.most:g}"
    return f"at least {param.least:g}" if param.most is None else f"from {param.least:g} to {param.most:g}"


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    """A number in plain notation; Python's float() also accepts 1_000, digits of other scripts and nan."""
    if not _NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


_CONVERT: dict[ParamType, Callable[[str], Any]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
