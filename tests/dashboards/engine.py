"""A real Prometheus, asked as Grafana asks it."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.dashboards.boards import Shown, chosen, interpolated

SCRAPE = 5  # seconds
STEP = 15
# What Grafana computes for a data source with this scrape interval and a range of an hour.
MACROS = {"__rate_interval": f"{4 * SCRAPE}s", "__interval": f"{STEP}s", "__range": "3600s"}


class Series(NamedTuple):
    """One series of an answer; of a range, its last number."""

    labels: dict[str, str]
    value: float


class Engine:
    """Answers queries of panels and of variables."""

    def __init__(self, url: str) -> None:
        self.url = url

    def panel(self, shown: Shown, choice: Mapping[str, str | list[str]] | None = None) -> dict[str, list[Series]]:
        """The answer to each query of a panel, by its letter."""
        values = {**self.chosen(shown, choice or {}), **MACROS}
        return {
            query["refId"]: self.ask(interpolated(query["expr"], values), instant=query.get("instant", False))
            for query in shown.queries
        }

    def chosen(self, shown: Shown, choice: Mapping[str, str | list[str]]) -> dict[str, str]:
        """The variables of a panel. One without "All" has every value here; Grafana would take the first."""
        known = dict(choice)
        for variable in shown.variables:
            if variable["type"] == "query" and not variable["includeAll"] and variable["name"] not in known:
                known[variable["name"]] = self.label_values(variable, chosen(shown.variables, known))
        return chosen(shown.variables, known)

    def ask(self, query: str, *, instant: bool = True, at: float | None = None) -> list[Series]:
        if instant:
            rows = self._get("query", query=query, **({} if at is None else {"time": str(at)}))["result"]
            return [Series(row["metric"], float(row["value"][1])) for row in rows]
        end = float(self._get("query", query="time()")["result"][1])
        found = self._get("query_range", query=query, start=str(end - 3600), end=str(end), step=str(STEP))
        assert found["resultType"] == "matrix"
        return [Series(row["metric"], float(row["values"][-1][1])) for row in found["result"]]

    def label_values(self, variable: Mapping[str, Any], values: Mapping[str, str]) -> list[str]:
        """What a variable offers: label_values(selector, label), as Grafana splits it."""
        text = interpolated(variable["query"]["query"], values)
        selector, _, label = text.removeprefix("label_values(").removesuffix(")").rpartition(", ")
        found: list[str] = self._get(f"label/{label}/values", **{"match[]": selector})
        return found

    def metadata(self, name: str) -> list[dict[str, str]]:
        """Type and help of a metric, as each target says it."""
        found: dict[str, list[dict[str, str]]] = self._get("metadata", metric=name)
        return found.get(name, [])

    def rules(self) -> list[dict[str, Any]]:
        """The groups of rules, with their health."""
        found: list[dict[str, Any]] = self._get("rules")["groups"]
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{parameters}: {e.read().decode()}") from e


def measured(series: list[Series]) -> list[Series]:
    """Those with a number: a quantile of nothing is NaN, which Grafana does not draw."""
    return [one for one in series if math.isfinite(one.value)]
