"""A reader of PromQL that knows nothing of how our queries are made: which series they read, merged by what."""

import re
from typing import NamedTuple

from tools.dashboards.promql import METRICS, labels_of
from vgpuscope.formats.prom.promql import Matcher, read_condition

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<braces>\{[^{}]*\})|(?P<brackets>\[[^\]]*\])|(?P<text>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<number>\d[\d.e]*(?:ms|[smhd])?)|(?P<variable>\$\w+)|(?P<word>[A-Za-z_]\w*)|(?P<sign>[-+*/%(),<>=!^]+?)"""
)
_FUNCTIONS = {
    "avg",
    "count",
    "histogram_quantile",
    "increase",
    "label_replace",
    "max",
    "min",
    "rate",
    "sort_desc",
    "sum",
    "time",
    "topk",
}
_WORDS = {"and", "by", "group_left", "offset", "on", "or", "unless"}
_LISTS = {"by", "on", "group_left"}
_NAMES = {metric.name for metric in METRICS}
_LABELS = {label for metric in METRICS for label in labels_of(metric)} | {"cluster", "le", "job", "instance", "gpu"}
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


class Read(NamedTuple):
    """One selector of a query."""

    name: str
    suffix: str
    matchers: tuple[Matcher, ...]
    by: frozenset[str]  # labels of the innermost aggregation around it


def tokens(query: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(query):
        matched = _TOKEN.match(query, at)
        assert matched is not None, f"{query[at : at + 30]!r} is not PromQL as we write it"
        at = matched.end()
        kind = matched.lastgroup or ""
        if kind == "sign":
            found += [("sign", sign) for sign in matched[0]]
        elif kind != "space":
            found.append((kind, matched[0]))
    return found


def unknown_words(query: str) -> list[str]:
    """Words that are no metric, function, keyword or label."""
    known = _NAMES | _LABELS | _FUNCTIONS | _WORDS
    words = [text for kind, text in tokens(query) if kind == "word"]
    return [word for word in words if word not in known and _SUFFIX.sub("", word) not in _NAMES]


def selectors(query: str) -> list[Read]:
    """Every selector, with the labels of the innermost aggregation that it stands in."""
    found: list[Read] = []
    around: list[frozenset[str] | None] = []  # for each open parenthesis, the labels of an aggregation
    labels: frozenset[str] | None = None
    listing: set[str] | None = None
    read = tokens(query)
    for at, (kind, text) in enumerate(read):
        before = read[at - 1] if at else ("", "")
        if kind == "sign" and text == "(":
            if before[1] in _LISTS:
                listing = set()
                continue
            around.append(labels if before == ("sign", ")") or before[1] in {"sum", "max", "min"} else None)
            labels = None
        elif kind == "sign" and text == ")":
            if listing is None:
                around.pop()
            else:
                opened = _opener(read, at)
                labels, listing = (frozenset(listing) if opened == "by" else None), None
        elif kind == "word" and listing is not None:
            listing.add(text)
        elif kind == "word" and _base(text) in _NAMES:
            follows = read[at + 1] if at + 1 < len(read) else ("", "")
            matchers = read_condition(follows[1].replace("$", "")) if follows[0] == "braces" else ()
            inner = next((one for one in reversed(around) if one is not None), frozenset[str]())
            found.append(Read(_base(text), text.removeprefix(_base(text)), matchers, inner))
    return found


def _opener(read: list[tuple[str, str]], at: int) -> str:
    """The keyword before the list that ends here."""
    while read[at] != ("sign", "("):
        at -= 1
    return read[at - 1][1]


def _base(name: str) -> str:
    return name if name in _NAMES else _SUFFIX.sub("", name)
