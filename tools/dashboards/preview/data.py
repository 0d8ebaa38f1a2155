"""The answers of a Prometheus to the queries of a dashboard, with variables as Grafana fills them."""

import json
import math
import re
import time
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

POINTS = 120
Json = dict[str, Any]


class Series(NamedTuple):
    """One series: labels and points, of which an instant query has one."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def last(self) -> float:
        return self.points[-1][1]


class Source:
    """A Prometheus, asked about the last `minutes`."""

    def __init__(self, url: str, minutes: float) -> None:
        self.url, self.end = url, time.time()
        self.begin = self.end - 60 * minutes
        self.step = max(5.0, (self.end - self.begin) / POINTS)

    def values(self, board: Json) -> dict[str, str]:
        """The variables of a dashboard; one without "All" has its first value, as in Grafana."""
        found = {"__rate_interval": "60s", "__interval": f"{max(30, round(self.step))}s"}
        found["__range"] = f"{round(self.end - self.begin)}s"
        for variable in board["templating"]["list"]:
            found[variable["name"]] = self._value(variable, found)
        return found

    def _value(self, variable: Json, found: dict[str, str]) -> str:
        if variable["type"] != "query":
            return str(variable.get("current", {}).get("value", ""))
        if variable["includeAll"]:
            return str(variable["allValue"])
        text = filled(variable["query"]["query"], found)
        selector, _, label = text.removeprefix("label_values(").removesuffix(")").rpartition(", ")
        offered = self._get(f"label/{label}/values", {"match[]": selector})
        return str(offered[0]) if offered else ""

    def answers(self, panel: Json, values: dict[str, str]) -> list[list[Series]]:
        """The answer to each query of a panel."""
        return [self._ask(filled(query["expr"], values), query.get("instant", False)) for query in panel["targets"]]

    def _ask(self, query: str, instant: bool) -> list[Series]:
        if instant:
            rows = self._get("query", {"query": query, "time": str(self.end)})["result"]
            return [Series(row["metric"], [(row["value"][0], float(row["value"][1]))]) for row in rows]
        span = {"start": str(self.begin), "end": str(self.end), "step": str(self.step)}
        rows = self._get("query_range", {"query": query, **span})["result"]
        return [Series(row["metric"], [(at, float(value)) for at, value in row["values"]]) for row in rows]

    def _get(self, path: str, parameters: dict[str, str]) -> Any:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            return json.load(answer)["data"]


def filled(text: str, values: dict[str, str]) -> str:
    """The text with its variables replaced."""
    return re.sub(r"\$(\w+)", lambda found: values.get(found[1], found[0]), text)


def shown(value: float, unit: str, decimals: int | None = None) -> str:
    """A number as Grafana would write it, roughly."""
    if math.isnan(value):
        return "–"
    digits = 1 if decimals is None else decimals
    if unit in {"bytes", "Bps"}:
        return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"), digits) + ("/s" if unit == "Bps" else "")
    if unit == "percentunit":
        return f"{100 * value:.{digits}f} %"
    if unit in {"s", "dtdurations"}:
        return _duration(value)
    if unit == "watt":
        return _scaled(value, 1000, ("W", "kW", "MW"), digits)
    suffix = {"celsius": " °C", "kwatth": " kWh"}.get(unit, "")
    return f"{value:.{digits if decimals is not None or value % 1 else 0}f}{suffix}"


def _scaled(value: float, base: int, names: tuple[str, ...], digits: int) -> str:
    at = 0
    while abs(value) >= base and at < len(names) - 1:
        value, at = value / base, at + 1
    return f"{value:.{digits}f} {names[at]}"


def _duration(value: float) -> str:
    for name, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
        if value >= seconds:
            return f"{value / seconds:.1f} {name}"
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.0f} ms"
