"""The vocabulary has every code, in both languages."""

import re
from typing import Any, get_args

import msgspec
import pytest

from vgpuscope.http.sending import HTTP_ERRORS
from vgpuscope.model.analysis import Status, Verdict
from vgpuscope.model.cluster import FindingKind, LostReason
from vgpuscope.model.console.gpus import Mode
from vgpuscope.model.console.overview import AttentionKind, GpuClass
from vgpuscope.model.console.parts import PartName, PartState
from vgpuscope.model.console.timeline import EventKind
from vgpuscope.model.device import Health
from vgpuscope.model.errors import error_types
from vgpuscope.model.pending import Outcome
from vgpuscope.model.scheduling import Step
from vgpuscope.model.scheduling_codes import CODES, Stage
from vgpuscope.views.console.words import vocabulary
from vgpuscope.views.fleet.evidence import SENTENCES

CODES_OF: dict[str, set[Any]] = {
    "use_class": set(get_args(GpuClass)),
    "status": set(get_args(Status)),
    "verdict": set(get_args(Verdict)),
    "reason": {*SENTENCES},
    "error": {kind.code for kind in error_types()} | {code for code, _, _ in HTTP_ERRORS.values()},
    "scheduling": {code.code for code in CODES},
    "stage": set(get_args(Stage)),
    "step": set(get_args(Step)),
    "outcome": set(get_args(Outcome)),
    "finding": set(get_args(FindingKind)),
    "attention": set(get_args(AttentionKind)),
    "event": set(get_args(EventKind)),
    "mode": set(get_args(Mode)),
    "health": set(get_args(Health)),
    "lost": set(get_args(LostReason)),
    "part": set(get_args(PartName)),
    "part_state": set(get_args(PartState)),
}
KINDS = msgspec.structs.asdict(vocabulary())


@pytest.mark.parametrize("kind", CODES_OF)
def test_every_code_has_its_words(kind):
    assert {word.code for word in KINDS[kind]} == CODES_OF[kind]
    assert KINDS.keys() == CODES_OF.keys()


@pytest.mark.parametrize("word", [word for words in KINDS.values() for word in words], ids=lambda word: word.code)
def test_a_chinese_name_is_chinese_with_chinese_punctuation(word):
    for text in (word.name.zh, *((word.advice.zh,) if word.advice else ())):
        assert re.search(r"[\u4e00-\u9fff]", text)
        assert not re.search(r"[\u4e00-\u9fff][,:;()]|[,:;(][\u4e00-\u9fff]", text)
    assert re.fullmatch(r"[\x20-\x7e≤×]+", word.name.en), word.name.en
