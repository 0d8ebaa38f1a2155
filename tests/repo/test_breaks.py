"""The breaks of `make e2e-breaks` fit the sources: their lines are there once, and their tests exist."""

import ast

import pytest

from tests.e2e.breaks import BREAKS, changed
from tests.paths import REPOSITORY


@pytest.mark.parametrize("name", BREAKS)
def test_what_a_break_changes_is_there_once_and_is_python_afterwards(name: str) -> None:
    for file, text in changed(BREAKS[name]).items():
        assert text != (REPOSITORY / file).read_text()
        if file.endswith(".py"):
            ast.parse(text)


@pytest.mark.parametrize("name", BREAKS)
def test_the_test_of_a_break_exists(name: str) -> None:
    for test in (BREAKS[name].test, *BREAKS[name].before):
        file, _, function = test.partition("::")
        assert f"def {function.partition('[')[0]}(" in (REPOSITORY / file).read_text()
