"""The report: a part of the chain of which most was not checked is never ticked; counts are those of its findings."""

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from vgpuscope.logic.doctor.chain import CHAIN
from vgpuscope.model.doctor import AskedService, Check, CheckOutcome, DoctorReport, Missing, ObjectNames, Status
from vgpuscope.views.doctor.report import merged, report
from vgpuscope.views.doctor.terminal import drawn

MISSING = Missing(fact="prometheus", reason="not-given")
statuses = st.lists(
    st.sampled_from(["pass", "pass", "warn", "fail", "skipped", "skipped"]), min_size=len(CHAIN), max_size=len(CHAIN)
)


def made(given_statuses: list[Status], **more: object) -> DoctorReport:
    checks = [
        Check(
            code=link.code,
            stage=link.stage,
            judgement=CheckOutcome(status=status, missing=MISSING if status == "skipped" else None),
        )
        for link, status in zip(CHAIN, given_statuses, strict=True)
    ]
    return report(checks, at="", version="", place="outside", seconds=0.0, **more)  # type: ignore[arg-type]


def shown(found: DoctorReport, language: str = "en") -> list[str]:
    console = Console(width=80, no_color=True, highlight=False)
    with console.capture() as text:
        console.print(drawn(found, language))  # type: ignore[arg-type]
    return text.get().splitlines()


@given(statuses)
def test_a_part_is_ticked_only_if_nothing_is_wrong_and_at_least_half_was_checked(given_statuses: list[Status]):
    found = made(given_statuses)
    for stage in found.stages:
        mine = [one.status for one in found.findings if one.stage == stage.stage]
        assert sum(stage.counts.values()) == len(mine)
        assert {name: mine.count(name) for name in stage.counts} == stage.counts
        assert sum(one.checks for one in stage.not_checked) == mine.count("skipped")
        ticked = stage.status == "pass"
        assert ticked == (
            not {"warn", "fail"} & set(mine) and "pass" in mine and mine.count("pass") > 3 * mine.count("skipped")
        )
        assert (stage.status == "skipped") == (set(mine) == {"skipped"})
        assert (stage.status in {"warn", "fail"}) == bool({"warn", "fail"} & set(mine))


def test_two_passed_and_the_rest_not_checked_reads_so_with_the_reason():
    agents = [link.code for link in CHAIN if link.stage == "agent"]
    lines = shown(made(["pass" if link.code in {*agents[:2], "HISTORY_OFF"} else "skipped" for link in CHAIN]))
    at = next(number for number, line in enumerate(lines) if "agents" in line)
    assert lines[at] == f"~ agents          partly checked: 2 of {len(agents)}"
    assert lines[at + 1].strip().startswith("Not checked: no address of Prometheus was given")
    assert not [line for line in lines if line.startswith("✓")]


def test_services_that_did_not_answer_are_shown_however_many_did():
    rows = [AskedService(service="agent", state="answered", found_by="analyzer", name=f"n{n:03}") for n in range(300)]
    rows += [AskedService(service="agent", state="no-answer", found_by="analyzer", name="broken")]
    lines = shown(made(["pass"] * len(CHAIN), services=tuple(rows)))
    assert [line for line in lines if line.startswith("✗ agent broken")]
    assert "  agent: 292 more of them answered" in lines
    assert len(lines) < 40


def test_of_an_older_analyzer_a_fault_that_was_found_here_stays():
    here, there = made(["skipped"] * len(CHAIN)), made(["pass"] * len(CHAIN))
    assert {one.status for one in merged(here, there).findings} == {"pass"}
    bad = made(["fail"] * len(CHAIN))
    assert {one.status for one in merged(bad, there).findings} == {"fail"}
    assert {one.status for one in merged(there, here).findings} == {"pass"}


def test_a_missing_fact_reads_well_in_both_languages():
    """No blank after a Chinese mark, none lost around a Latin word, and a plural is no subject of `has`."""
    judgement = CheckOutcome(status="skipped", missing=Missing(fact="series", reason="no-data"))
    (finding,) = report(
        [Check(code=CHAIN[0].code, stage=CHAIN[0].stage, judgement=judgement)],
        at="",
        version="",
        place="outside",
        seconds=0.0,
    ).findings
    assert finding.cause is not None
    assert finding.cause.zh == "没有可判断的数据：GPU 序列中没有这类数据。"
    assert finding.cause.en == "Nothing to judge: no such data from GPU series."


def commands(code: str, names: ObjectNames) -> tuple[str, ...]:
    link = next(link for link in CHAIN if link.code == code)
    check = Check(code=code, stage=link.stage, judgement=CheckOutcome(status="warn", names=names))
    return report([check], at="", version="", place="outside", seconds=0.0).findings[0].commands


def test_commands_have_the_names_that_are_known():
    assert commands("REGION_NOT_MADE", ObjectNames(namespace="research", pod="dev-0"))[0] == (
        "kubectl exec -n research dev-0 -- nvidia-smi"
    )
    assert (
        commands("NODES_WITHOUT_AGENT", ObjectNames(node="gpu-7.example"))[0]
        == "kubectl label node gpu-7.example gpu=on"
    )
    assert "NODE" in commands("NODES_WITHOUT_AGENT", ObjectNames())[0]
    assert commands("GPU_UNHEALTHY", ObjectNames(node="a", gpu="GPU-1"))[1] == "nvidia-smi --gpu-reset -i GPU-1"


@given(st.text())
def test_a_label_that_is_no_name_never_gets_into_a_command(label: str):
    named = commands("REGION_NOT_MADE", ObjectNames(namespace="research", pod=label))[0]
    assert re.fullmatch(r"kubectl exec -n research (POD|[A-Za-z0-9][A-Za-z0-9.-]*) -- nvidia-smi", named)
