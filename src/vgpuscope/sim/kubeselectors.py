"""Field and label selectors: which objects of a kind a list or a watch is about."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vgpuscope.sim.kubekinds import KINDS

Json = dict[str, Any]
_OF_EVERY_KIND = frozenset({"metadata.name", "metadata.namespace"})
_EQUALITY = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)")
_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_PRESENCE = re.compile(r"(!?)\s*([^=!,()\s]+)")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


class BadSelector(ValueError):
    """A selector that cannot be understood, or a field that cannot be selected by."""


class _Requirement(NamedTuple):
    key: str
    values: frozenset[str] | None  # None: any value
    negated: bool

    def holds(self, value: str | None) -> bool:
        """`value`: None if there is none."""
        present = value is not None if self.values is None else value in self.values
        return present is not self.negated


class Selector(NamedTuple):
    """All requirements must hold; without any, every object is selected."""

    fields: tuple[_Requirement, ...] = ()
    labels: tuple[_Requirement, ...] = ()

    def selects(self, content: Json) -> bool:
        """Whether the object is selected."""
        labels = content["metadata"].get("labels") or {}
        return all(one.holds(_field(content, one.key)) for one in self.fields) and all(
            one.holds(labels.get(one.key)) for one in self.labels
        )


def selector(plural: str, query: Mapping[str, str]) -> Selector:
    """The selector of a request for objects of a kind."""
    fields = tuple(_requirements(query.get("fieldSelector", "")))
    allowed = _OF_EVERY_KIND | KINDS[plural].fields
    for one in fields:
        if one.key not in allowed or one.values is None:
            raise BadSelector(f"field label not supported: {one.key}")
    return Selector(fields, tuple(_requirements(query.get("labelSelector", ""))))


def _requirements(text: str) -> Iterator[_Requirement]:
    for part in filter(None, map(str.strip, _OUTSIDE_PARENTHESES.split(text))):
        if match := _SET.fullmatch(part):
            yield _Requirement(match[1], frozenset(map(str.strip, match[3].split(","))), match[2] == "notin")
        elif match := _EQUALITY.fullmatch(part):
            yield _Requirement(match[1], frozenset({match[3]}), match[2] == "!=")
        elif match := _PRESENCE.fullmatch(part):
            yield _Requirement(match[2], None, bool(match[1]))
        else:
            raise BadSelector(f"unable to parse requirement: {part!r}")


def _field(content: Json, path: str) -> str:
    """The field as text; "" if it is absent, and "false" for a boolean."""
    found: Any = content
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if path == "spec.unschedulable":
        return "true" if found else "false"
    return "" if found is None else str(found)
