"""Writes the analyzer's OpenAPI document, from which the console's types are made: python -m tools.writers.openapi."""

import sys
from typing import Any, cast

from vgpuscope.http.openapi import document
from vgpuscope.http.session_api import SessionApi
from vgpuscope.services.analyzer.api import ABOUT, TITLE, AnalyzerApi, AnalyzerState


class _Unasked:
    """Stands for the analyzer's parts, of which the document needs none."""

    def __getattr__(self, name: str) -> Any:
        return _Unasked()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return _Unasked()

    def __bool__(self) -> bool:
        return False


def analyzer_api() -> AnalyzerApi:
    """The analyzer's table of operations, without an analyzer."""
    unasked: Any = _Unasked()
    session = SessionApi(unasked, unasked)
    return AnalyzerApi(cast("AnalyzerState", unasked), more=session.operations())


def analyzer_document() -> bytes:
    """The document of all operations of the analyzer, without the definitions of figures: types need none."""
    return document(analyzer_api().operations, title=TITLE, description=ABOUT)


if __name__ == "__main__":
    sys.stdout.buffer.write(analyzer_document())
