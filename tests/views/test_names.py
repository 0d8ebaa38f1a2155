"""Every code has a Chinese name, and its advice names the same commands as the English one."""

import re
from typing import Any, get_args

import pytest

from vgpuscope.http.sending import HTTP_ERRORS
from vgpuscope.model.analysis import STATUSES, USE_CLASSES, VERDICTS
from vgpuscope.model.errors import error_types
from vgpuscope.model.pending import Outcome
from vgpuscope.model.scheduling_codes import BY_CODE, CODES, Stage
from vgpuscope.views.names import (
    CLASS_NAMES,
    ERROR_NAMES,
    OUTCOME_NAMES,
    REASON_NAMES,
    STAGE_NAMES,
    STATUS_NAMES,
    VERDICT_NAMES,
)

ERRORS = {kind.code for kind in error_types()} | {code for code, _, _ in HTTP_ERRORS.values()}
NAMES: dict[str, tuple[Any, Any]] = {
    "status": (STATUS_NAMES, STATUSES),
    "verdict": (VERDICT_NAMES, VERDICTS),
    "class": (CLASS_NAMES, USE_CLASSES),
    "outcome": (OUTCOME_NAMES, get_args(Outcome)),
    "stage": (STAGE_NAMES, get_args(Stage)),
    "reason": (REASON_NAMES, [code.code for code in CODES]),
    "error": (ERROR_NAMES, ERRORS),
}
ROWS = [row for table, _ in NAMES.values() for row in table.values()]
TEXTS = [text for row in ROWS for text in ([row] if isinstance(row, str) else row)]


@pytest.mark.parametrize("kind", NAMES)
def test_every_code_has_a_chinese_name_and_every_name_its_code(kind: str) -> None:
    names, codes = NAMES[kind]
    assert set(names) == set(codes)


@pytest.mark.parametrize("text", TEXTS)
def test_a_chinese_name_is_chinese_with_chinese_punctuation(text: str) -> None:
    assert re.search(r"[\u4e00-\u9fff]", text)
    assert not re.search(r"[\u4e00-\u9fff][,:;()]|[,:;(][\u4e00-\u9fff]", text)


@pytest.mark.parametrize("code", REASON_NAMES)
def test_chinese_advice_names_the_same_commands_and_placeholders(code: str) -> None:
    def named(text: str) -> set[str]:
        return {*re.findall(r"`[^`]+`", text), *re.findall(r"\b(?:NAMESPACE|POD|NODE|SCHEDULER)\b", text)}

    assert named(REASON_NAMES[code].runbook) == named(BY_CODE[code].runbook)
    assert REASON_NAMES[code].meaning.endswith("。")
    assert REASON_NAMES[code].runbook.endswith("。")
