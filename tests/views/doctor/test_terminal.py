"""The commands of a finding can be copied from a narrow screen. The truth is what a shell makes of them."""

import io
import re
import subprocess
from pathlib import Path

import pytest
from msgspec import structs
from rich.cells import cell_len
from rich.console import Console

from tests.paths import REPOSITORY
from vgpuscope.model.doctor import DoctorFinding
from vgpuscope.model.words import Language, Words
from vgpuscope.views.doctor import terminal
from vgpuscope.views.doctor.terminal import command_lines
from vgpuscope.views.doctor.words import STAGE_NAMES

WRITTEN = sorted(
    set(
        re.findall(
            r'"((?:kubectl|vgpuscope|curl|helm|nvidia-smi) [^"{}<>|&;()$`]*)"',
            Path(REPOSITORY, "src/vgpuscope/views/doctor/words.py").read_text(),
        )
    )
)
HARD = [
    """kubectl -n gpu get pods -o jsonpath='{range .items[*]}{.metadata.name} {.spec.nodeName}{end}' --sort-by=.kind""",
    """curl -s -H "Authorization: Bearer a b  c" --data '{"a": "it is"}' http://analyzer:8080/api/v1/settings/one/two/three""",
    r"""printf one\ word "a \" b" 'c   d' and some more words that make it longer than one line of the screen""",
]


def words_of(command: str) -> list[str]:
    """The words that a real shell reads."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")


@pytest.mark.parametrize("width", [30, 74])
@pytest.mark.parametrize("command", WRITTEN + HARD)
def test_a_command_in_several_lines_is_the_same_command(command: str, width: int):
    lines = command_lines(command, width)
    assert lines[0].startswith("$ ")
    assert words_of("\n".join(lines)[2:]) == words_of(command)


def test_commands_were_found():
    assert len(WRITTEN) > 10


@pytest.mark.parametrize("command", WRITTEN)
def test_a_line_fits_unless_one_word_does_not(command: str):
    assert all(len(line) <= 74 or len(line.split()) <= 2 for line in command_lines(command, 74))


def test_a_short_command_stays_in_one_line():
    assert command_lines("kubectl get nodes", 74) == ["$ kubectl get nodes"]


@pytest.mark.parametrize(("lang", "line"), [("en", "  and 2 more"), ("zh", "  另有 2 项")])
def test_objects_that_are_not_named_are_counted_below_the_others(lang: Language, line: str):
    finding = DoctorFinding(
        code="GPM_UNSUPPORTED",
        stage="driver",
        status="warn",
        title=Words("GPUs have profiling values", "GPU 有性能剖析数值"),
        numbers={"count": 3, "omitted": 2},
        examples=("GPU-0",),
    )
    assert line in shown(finding, lang)
    hidden = structs.replace(finding, examples=())  # of a caller who may not see every namespace
    assert line not in shown(hidden, lang)


def test_a_name_is_not_broken_in_a_chinese_sentence_and_its_lines_are_full():
    sentence = (
        "在这些节点上运行带有性能剖析字段（`DCGM_FI_PROF_GR_ENGINE_ACTIVE`、`DCGM_FI_PROF_SM_ACTIVE`）"
        "和 `SYS_ADMIN` 权限的 exporter。"
    )
    finding = DoctorFinding(
        code="GPM_UNSUPPORTED", stage="driver", status="warn", title=Words("t", "t"), fix=Words("f", sentence)
    )
    lines = shown(finding, "zh")
    assert any("`DCGM_FI_PROF_SM_ACTIVE`" in line for line in lines)
    assert max(map(cell_len, lines)) <= 80


def shown(finding: DoctorFinding, lang: Language) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as captured:
        console.print(*terminal._finding(finding, lang))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_the_name_of_a_stage_is_shown_whole_and_does_not_touch_the_next_column(stage):
    for text in (STAGE_NAMES[stage].en, STAGE_NAMES[stage].zh):
        assert cell_len(text) < terminal._STAGE_WIDTH
