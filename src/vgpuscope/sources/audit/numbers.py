"""Answers and pages of metrics → the numbers in them, each with the code of its definition and its subject."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from vgpuscope.catalog.agent import METRICS as AGENT
from vgpuscope.catalog.analyzer import METRICS as ANALYZER
from vgpuscope.catalog.cluster import METRICS as CLUSTER
from vgpuscope.catalog.extender import METRICS as EXTENDER
from vgpuscope.catalog.figure import Figure
from vgpuscope.catalog.figures import BY_CODE, FIGURES, figures_of_field
from vgpuscope.formats.prom.text import decode_labels, number
from vgpuscope.model.consistency import Answer, Reading
from vgpuscope.sources.audit.shapes import (
    FORMER,
    KEYS,
    LABELS,
    LEFT_OUT,
    NAMED,
    PARTS,
    margin_of,
    scale_of,
    subject_of,
)

Schema = Mapping[str, Any]
_REF = "#/components/schemas/"
_LINE = re.compile(rb"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (.+)$")
_METRICS: dict[str, Figure] = {name: figure for figure in FIGURES for name in figure.metrics}
# Several fields of one shape that are the parts of one figure, such as the rows of a ledger.
_DIVIDED = {
    (figure.code, struct)
    for figure in FIGURES
    for struct, fields in Counter(place.partition(".")[0] for place in figure.fields).items()
    if fields > 1
}
_OURS = frozenset(metric.name for metrics in (AGENT, ANALYZER, CLUSTER, EXTENDER) for metric in metrics)


class Document(Struct, frozen=True, kw_only=True):
    """What a service says of its own answers: the shapes of its OpenAPI document."""

    schemas: dict[str, Schema]
    answers: dict[str, Schema]  # path, with braces for its parameters → the shape of its JSON

    def shape(self, path: str) -> Schema | None:
        """The shape of what a path answers with; None if the service has no such path."""
        if path in self.answers:
            return self.answers[path]
        for template, schema in self.answers.items():
            if "{" in template and re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", template), path):
                return schema
        return None

    def kind(self, path: str) -> str:
        """The name of that shape; of a list, with [] behind the name of its rows."""
        schema = self.shape(path) or {}
        first = next(iter(schema.get("anyOf", ())), schema)
        if first.get("type") == "array":
            return f"{_name(first.get('items', {}))}[]"
        return _name(first)

    @property
    def defined(self) -> frozenset[str]:
        """The figures that the document itself defines."""
        fields = [field for schema in self.schemas.values() for field in schema.get("properties", {}).values()]
        alone = {field["x-figure"] for field in fields if "x-figure" in field}
        return frozenset(alone.union(*(field["x-figures"].values() for field in fields if "x-figures" in field)))


def document(body: Any) -> Document:
    """An OpenAPI document → the shapes of answers to GET."""
    answers: dict[str, Schema] = {}
    for path, operations in body.get("paths", {}).items():
        content = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        if "application/json" in content:
            answers[path] = content["application/json"].get("schema", {})
    return Document(schemas=body.get("components", {}).get("schemas", {}), answers=answers)


def readings_of(answer: Answer, shapes: Document) -> list[Reading]:
    """Every number of an answer that has a definition. Numbers whose subject is ambiguous are left out."""
    kind, many = answer.kind.removesuffix("[]"), answer.kind.endswith("[]")
    walk = _Walk(answer, shapes)
    schema: Schema = {"$ref": f"{_REF}{kind}"}
    if many:
        schema = {"type": "array", "items": schema}
    found = list(walk.through(answer.body, schema, "", {"service": answer.service}, ""))
    return _unambiguous(found)


class _Spot(Struct, frozen=True, kw_only=True):
    """Where a field is, in its shape and in the answer, and the names around it."""

    place: str  # Struct.field
    path: str
    names: dict[str, str]
    rows: str

    def below(self, path: str) -> "_Spot":
        return structs.replace(self, path=self.path + path)


class _Walk:
    """The way through one answer, along its shapes."""

    def __init__(self, answer: Answer, shapes: Document) -> None:
        self._answer, self._schemas = answer, shapes.schemas

    def through(self, value: Any, schema: Schema, path: str, names: dict[str, str], rows: str) -> Iterator[Reading]:
        """The numbers below a value."""
        if value is None:
            return
        schema = self._resolved(schema, value)
        if isinstance(value, list):
            items = schema.get("items", {})
            inside = path or "rows"
            for index, item in enumerate(value):
                yield from self.through(item, items, f"{inside}[{index}]", names, rows or inside)
            return
        name = _title(schema)
        if not isinstance(value, dict) or not name:
            if isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
                for key, item in value.items():
                    yield from self.through(item, schema["additionalProperties"], f"{path}[{key}]", names, rows)
            return
        names, kind = _named(name, value, names), name.removeprefix("SomeOf")
        properties = schema.get("properties", {})
        tenants_only = self._answer.kind.endswith("LowBody") and kind == "ResultRow" and value.get("shared")
        for field, item in value.items():
            place, below = f"{kind}.{field}", f"{path}.{field}".lstrip(".")
            if place in LEFT_OUT or item is None or (tenants_only and field != "tenants"):
                continue
            if kind == "TenantResult" and value.get("until") is not None:
                continue  # a former tenant
            figures = _figures(name, field, properties.get(field, {}))
            if place in NAMED and isinstance(item, dict):
                rest = self._resolved(properties.get(field, {}), item).get("additionalProperties") or {}
                for key, inner in item.items():
                    yield from self.through(inner, rest, f"{below}[{key}]", names | {NAMED[place]: key}, rows or below)
            elif figures:
                yield from self._numbers(figures, item, _Spot(place=place, path=below, names=names, rows=rows))
            else:
                yield from self.through(item, properties.get(field, {}), below, names, rows)

    def _numbers(self, figures: Mapping[str, Figure], item: Any, spot: "_Spot") -> Iterator[Reading]:
        whole = figures.get("")
        if whole is not None and _is_number(item):
            yield from self._reading(whole, item, spot, ())
        elif isinstance(item, dict):
            for key, inner in item.items():
                if whole is not None and _is_number(inner):
                    yield from self._reading(whole, inner, spot.below(f"[{key}]"), (key,))
                elif key in figures and _is_number(inner):
                    yield from self._reading(figures[key], inner, spot.below(f".{key}"), ())
                elif isinstance(inner, dict):
                    for part, value in inner.items():
                        if part in figures and _is_number(value):
                            yield from self._reading(figures[part], value, spot.below(f"[{key}].{part}"), (key,))

    def _reading(self, figure: Figure, value: float, spot: "_Spot", parts: tuple[str, ...]) -> Iterator[Reading]:
        subject = subject_of(figure, spot.names)
        if (figure.code, spot.place.partition(".")[0]) in _DIVIDED:
            parts = (spot.path.rpartition(".")[2], *parts)
        if subject is not None:
            yield Reading(
                surface=self._answer.surface,
                path=spot.path,
                figure=figure.code,
                subject=(*subject, *parts),
                value=value * scale_of(spot.place, figure),
                margin=margin_of(figure),
                scope=self._answer.scope,
                moment=self._answer.moment,
                rows=spot.rows,
            )

    def _resolved(self, schema: Schema, value: Any) -> Schema:
        """The shape behind references and alternatives that fits a value; {} where anything does."""
        for _ in range(8):
            if not isinstance(schema, dict):
                return {}
            if "$ref" in schema:
                schema = self._schemas.get(schema["$ref"].removeprefix(_REF), {})
            elif "anyOf" in schema:
                schema = next((one for one in schema["anyOf"] if self._fits(one, value)), {})
            else:
                break
        return schema

    def _fits(self, schema: Schema, value: Any) -> bool:
        if not isinstance(schema, dict):
            return bool(schema)
        if "$ref" in schema:
            schema = self._schemas.get(schema["$ref"].removeprefix(_REF), {})
        if schema.get("type") == "null":
            return value is None
        if isinstance(value, list):
            return schema.get("type") == "array"
        if isinstance(value, dict):
            properties = schema.get("properties", {})
            return schema.get("type") == "object" and (not properties or set(value) <= set(properties))
        return schema.get("type") not in {"array", "object"}


def page_readings(page: bytes, *, surface: str, service: str, moment: str = "") -> list[Reading]:
    """The numbers of a page of metrics; only names of ours, without the same number under other names."""
    found: dict[tuple[str, tuple[str, ...]], Reading] = {}
    for line in page.split(b"\n"):
        matched = _LINE.match(line)
        if matched is None or line.startswith(b"#"):
            continue
        name = matched[1].decode("ascii", "replace")
        figure = _METRICS.get(name)
        labels = decode_labels(matched[2]) if matched[2] else {}
        if figure is None or name not in _OURS or labels is None:
            continue
        value = number(matched[3])
        names = {LABELS[label]: text for label, text in labels.items() if label in LABELS} | {"service": service}
        subject = subject_of(figure, names)
        if math.isnan(value) or subject is None:
            continue
        subject += tuple(labels[label] for label in labels if label in PARTS)
        written = ",".join(f'{label}="{text}"' for label, text in labels.items())
        reading = Reading(
            surface=surface,
            path=f"{name}{{{written}}}" if written else name,
            figure=figure.code,
            subject=subject,
            value=value * scale_of(name, figure),
            margin=margin_of(figure),
            moment=moment,
            rows=name,
        )
        if figure.subject == "fleet" and "namespace" in labels:  # one series for each namespace: the fleet is their sum
            before = found.get((name, subject))
            total = reading.value + (before.value if before else 0)
            reading = structs.replace(reading, path=f"sum({name}{{{','.join(subject)}}})", value=total)
            found[name, subject] = reading
        else:
            found[written + name, subject] = reading
    return _unambiguous(list(found.values()))


def _unambiguous(readings: list[Reading]) -> list[Reading]:
    """Without those that one place shows with several values for one subject: its name says too little."""
    known: dict[tuple[str, str, tuple[str, ...]], set[float]] = {}
    keys = [(reading.figure, re.sub(r"\[\d+\]|\{.*\}", "[]", reading.path), reading.subject) for reading in readings]
    for key, reading in zip(keys, readings, strict=True):
        known.setdefault(key, set()).add(reading.value)
    return [reading for key, reading in zip(keys, readings, strict=True) if len(known[key]) == 1]


def _figures(name: str, field: str, schema: Schema) -> Mapping[str, Figure]:
    """The definitions of a field: those of the audited system if it has them, else ours."""
    if "x-figure" in schema or "x-figures" in schema:
        codes = {"": schema["x-figure"]} if "x-figure" in schema else dict(schema["x-figures"])
        return {part: BY_CODE[code] for part, code in codes.items() if code in BY_CODE}
    former = FORMER.get(f"{name}.{field}")
    return {"": BY_CODE[former]} if former else figures_of_field(name, field)


def _named(name: str, value: dict[str, Any], names: dict[str, str]) -> dict[str, str]:
    keys = KEYS.get(name.removeprefix("SomeOf"))
    if not keys:
        return names
    found = dict(names)
    for part, field in keys.items():
        item: Any = value
        for step in field.split("."):
            item = item.get(step) if isinstance(item, dict) else None
        if item is not None or part == "mig":
            found[part] = "" if item is None else str(item)
        elif part in {"pod", "owner", "container"}:
            found[part] = ""
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _name(schema: Schema) -> str:
    return str(schema.get("$ref", "")).removeprefix(_REF)


def _title(schema: Schema) -> str:
    return str(schema.get("title", "")) if "properties" in schema else ""
