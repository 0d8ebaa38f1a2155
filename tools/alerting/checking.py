"""Which metrics and labels an expression names, compared with the catalog: a wrong name fails the build."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tools.writers.families import FAMILY_HELP
from vgpuscope.catalog import agent, analyzer, cluster, extender, plugin
from vgpuscope.knowledge.exporters import GROUPS

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)|(?P<comment>\#[^\n]*)"""
    r"""|(?P<number>\d[\w.]*)|(?P<word>[a-zA-Z_:][\w:]*)|(?P<mark>=~|!~|!=|==|<=|>=|\S)"""
)
_GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_OPERATORS = frozenset({"and", "or", "unless", "offset", "bool", "inf", "nan", "start", "end", "atan2"})
_AGGREGATIONS = frozenset(
    {"sum", "min", "max", "avg", "count", "group", "stddev", "stdvar", "topk", "bottomk", "quantile", "count_values"}
)
_WORDS = _OPERATORS | _AGGREGATIONS
TARGET_LABELS = frozenset({"job", "instance", "cluster"})  # Prometheus and its users add these

Labels = frozenset[str]


class Named(NamedTuple):
    """What an expression names."""

    metrics: tuple[tuple[str, Labels], ...]  # each with the labels of its matchers
    labels: Labels  # of by, on and so on


def named(expression: str) -> Named:
    """The metrics and labels of an expression of PromQL."""
    tokens = [(m.lastgroup or "", m.group()) for m in _TOKEN.finditer(expression) if m.lastgroup != "comment"]
    metrics: list[tuple[str, Labels]] = []
    labels: set[str] = set()
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind != "word" or text in _WORDS:
            continue
        if text in _GROUPING:
            if following == "(":
                inside, at = _until(tokens, at + 1, ")")
                labels.update(word for kind, word in inside if kind == "word")
        elif following == "{":
            inside, at = _until(tokens, at + 1, "}")
            metrics.append((text, frozenset(word for kind, word in inside if kind == "word")))
        elif following != "(":
            metrics.append((text, frozenset()))
    return Named(tuple(metrics), frozenset(labels))


def _until(tokens: list[tuple[str, str]], at: int, mark: str) -> tuple[list[tuple[str, str]], int]:
    end = next((i for i in range(at, len(tokens)) if tokens[i][1] == mark), len(tokens))
    return tokens[at:end], end + 1


def known_metrics() -> dict[str, Labels | None]:
    """All metrics with their labels; None where another exporter decides the labels."""
    found: dict[str, Labels | None] = {name: None for group in GROUPS for name in group.names}
    found["up"] = frozenset()
    for metric in (*agent.METRICS, *cluster.METRICS, *analyzer.METRICS, *extender.METRICS, *plugin.METRICS):
        for exposed in metric.exposed(frozenset(FAMILY_HELP)):
            labels = frozenset(name for name, _ in (*exposed.labels, *exposed.const)) | frozenset(exposed.extra)
            parts = ("_bucket", "_sum", "_count") if exposed.type == "histogram" else ("",)
            for part in parts:
                more = {"le"} if part == "_bucket" else set()
                found[exposed.name + part] = labels | more | (found.get(exposed.name + part) or frozenset())
    return found


def faults(rules: Mapping[str, Any]) -> Iterator[str]:
    """What a rule file names that does not exist; a rule may use what an earlier rule of the file records."""
    known = known_metrics()
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        name, seen = rule.get("alert") or rule["record"], named(rule["expr"])
        yield from (f"{name}: {fault}" for fault in expression_faults(seen, known))
        yield from (f"{name}: {fault}" for fault in _text_faults(rule, seen, known))
        if "record" in rule:
            known[rule["record"]] = seen.labels or None


def expression_faults(seen: Named, known: Mapping[str, Labels | None]) -> Iterator[str]:
    """The metrics and labels that do not exist."""
    for metric, matched in seen.metrics:
        if metric not in known:
            yield f"the metric {metric} is not in the catalog"
            continue
        labels = known[metric]
        if labels is not None and (wrong := matched - labels - TARGET_LABELS):
            yield f"{metric} has no label {', '.join(sorted(wrong))}"
    yield from (f"no metric here has the label {label}" for label in sorted(seen.labels - _labels(seen, known)))


def _labels(seen: Named, known: Mapping[str, Labels | None]) -> Labels:
    sets = [known.get(metric) for metric, _ in seen.metrics]
    return seen.labels if None in sets else TARGET_LABELS.union(*(labels for labels in sets if labels is not None))


_LABEL = re.compile(r"\$labels\.(\w+)")


def _text_faults(rule: Mapping[str, Any], seen: Named, known: Mapping[str, Labels | None]) -> Iterator[str]:
    texts: Iterable[str] = rule.get("annotations", {}).values()
    there = {*_labels(seen, known), *rule.get("labels", {})}
    used = {label for text in texts for label in _LABEL.findall(text)}
    yield from (f"a text names the label {label}, which the alert does not have" for label in sorted(used - there))
