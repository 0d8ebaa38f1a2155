"""The files of the dashboards, for tools.gen."""

from collections.abc import Callable
from functools import partial

from tools.dashboards.boards import BOARDS
from tools.dashboards.draw import dashboard_json, uid_of
from tools.dashboards.words import LANGUAGES, Language

FOLDER = "charts/vgpuscope/dashboards"


def path_of(uid: str, language: Language) -> str:
    """English is the chart's folder itself, so that its *.json is one complete set."""
    return f"{FOLDER}/zh/{uid}.json" if language == "zh" else f"{FOLDER}/{uid}.json"


def files() -> dict[str, Callable[[], str]]:
    """Path and content of every dashboard in every language."""
    return {
        path_of(uid_of(board, language), language): partial(dashboard_json, board, language)
        for language in LANGUAGES
        for board in BOARDS
    }
