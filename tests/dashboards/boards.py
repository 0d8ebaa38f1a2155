"""The dashboards as their files say, read as Grafana reads them."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.paths import REPOSITORY

FOLDER = REPOSITORY / "charts" / "vgpuscope" / "dashboards"
FILES = {"en": sorted(FOLDER.glob("*.json")), "zh": sorted((FOLDER / "zh").glob("*.json"))}
ALL = "$__all"


class Shown(NamedTuple):
    """One panel of one dashboard."""

    uid: str
    panel: dict[str, Any]
    variables: tuple[dict[str, Any], ...]

    @property
    def title(self) -> str:
        return str(self.panel["title"])

    @property
    def id(self) -> str:
        return f"{self.uid}/{self.title}"

    @property
    def kind(self) -> str:
        return str(self.panel["type"])

    @property
    def queries(self) -> list[dict[str, Any]]:
        return list(self.panel["targets"])


def read(path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text())
    return board


BOARDS = {language: [read(path) for path in paths] for language, paths in FILES.items()}


def everything(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows and panels, those of collapsed rows too."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def panels(language: str = "en") -> list[Shown]:
    """Every panel that asks something."""
    return [
        Shown(board["uid"], panel, tuple(board["templating"]["list"]))
        for board in BOARDS[language]
        for panel in everything(board)
        if panel["type"] != "row"
    ]


def chosen(variables: tuple[dict[str, Any], ...], choice: Mapping[str, str | list[str]]) -> dict[str, str]:
    """What Grafana puts in place of each variable: the current value, or one that somebody chose."""
    found = {}
    for variable in variables:
        value = choice.get(variable["name"], variable.get("current", {}).get("value", ""))
        if value in (ALL, [ALL]):
            value = variable["allValue"]
        elif isinstance(value, list):  # Grafana's Prometheus data source escapes each value for a regular expression
            escaped = [re.sub(r"[\\^$.*+?()\[\]{}|]", r"\\\\\g<0>", one) for one in value]
            value = escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
        found[variable["name"]] = value
    return found


def interpolated(text: str, values: Mapping[str, str]) -> str:
    """Variables in the forms $name and ${name}; what is no variable stays, as $1 of label_replace does."""

    def put(matched: re.Match[str]) -> str:
        return values.get(matched[1] or matched[2], matched[0])

    return re.sub(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}", put, text)


def names_in(template: str) -> list[str]:
    """The labels of a legend."""
    return re.findall(r"\{\{(\w+)\}\}", template)


def organized(panel: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a table or a bar chart."""
    (options,) = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
    found: dict[str, Any] = options
    return found
