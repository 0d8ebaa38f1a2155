"""Logging: what a line looks like, what it tells at which --v, and what it never tells."""

import io
import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.model.errors import DriverHung
from vgpuscope.model.pod import SourceState
from vgpuscope.runtime import log as logs
from vgpuscope.runtime.log import DEBUG, DETAIL, SUMMARY, OnChange, fields

log = logging.getLogger("vgpuscope.test")


@pytest.fixture(autouse=True)
def _restore():
    root, ours = logging.getLogger(), logging.getLogger("vgpuscope")
    before = root.handlers[:], root.level, ours.level, logging.getLogger("uvicorn.error").level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    logging.getLogger("uvicorn.error").setLevel(before[3])


@pytest.fixture
def lines():
    def setup(v=4, shape="text"):
        stream = io.StringIO()
        logs.setup(v=v, format=shape, stream=stream)
        return lambda: stream.getvalue().splitlines()

    return setup


@pytest.mark.parametrize(
    ("v", "level", "told"),
    [
        (0, None, "info warning error critical"),
        (3, None, "info warning error critical"),
        (4, None, "node info warning error critical"),
        (5, None, "device node info warning error critical"),
        (6, None, "query device node info warning error critical"),
        (4, "INFO", "node info warning error critical"),
        (0, "DEBUG", "query device node info warning error critical"),
        (6, "WARN", "warning error critical"),
        (6, "WARNING", "warning error critical"),
        (6, "ERROR", "error critical"),
        (6, "CRITICAL", "critical"),
    ],
)
def test_v_and_log_level_say_what_is_told(v, level, told):
    stream = io.StringIO()
    logs.setup(v=v, format="json", level=level, stream=stream)
    steps = {"query": DEBUG, "device": DETAIL, "node": SUMMARY, "info": 20, "warning": 30, "error": 40, "critical": 50}
    for word, step in steps.items():
        log.log(step, word)
    assert " ".join(json.loads(line)["msg"] for line in stream.getvalue().splitlines()) == told


def test_a_text_line_looks_like_klogs(lines):
    told = lines()
    log.info("sample taken", extra=fields(gpus=8, node="n 1", took=0.25, ok=True))
    assert re.fullmatch(
        r'I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_log\.py:\d+\] sample taken gpus=8 node="n 1" took=0\.25 ok=true',
        told()[0],
    )


def test_a_json_line_has_the_same_as_fields(lines):
    told = lines(shape="json")
    log.warning("source down", extra=fields(source="nvml", error_code="DRIVER_HUNG"))
    line = json.loads(told()[0])
    assert line["level"] == "warning"
    assert line["msg"] == "source down"
    assert (line["source"], line["error_code"]) == ("nvml", "DRIVER_HUNG")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["ts"])
    assert re.fullmatch(r"test_log\.py:\d+", line["caller"])


@pytest.mark.parametrize(
    ("v", "told"),
    [
        (0, "always"),
        (3, "always"),
        (4, "always summary"),
        (5, "always summary detail"),
        (6, "always summary detail debug"),
    ],
)
def test_v_decides_how_much_is_told(lines, v, told):
    heard = lines(v=v)
    log.log(DEBUG, "debug")
    log.log(DETAIL, "detail")
    log.log(SUMMARY, "summary")
    log.info("always")
    found = {line.rpartition(" ")[2] for line in heard()}
    assert found == set(told.split())


def test_warnings_and_errors_are_told_at_every_v_with_their_letter(lines):
    told = lines(v=0)
    log.warning("w")
    log.error("e")
    log.critical("f")
    assert [line[0] for line in told()] == ["W", "E", "F"]


def test_libraries_are_heard_only_when_they_warn(lines):
    told = lines(v=6)
    logging.getLogger("httpcore").info("chatter")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("httpcore").warning("trouble")
    assert len(told()) == 1


def test_plain_extra_is_a_field_too(lines):
    told = lines()
    log.info("x", extra={"source": "nvml"})
    assert told()[0].endswith("x source=nvml")


def test_a_field_may_have_any_name(lines):
    told = lines(shape="json")
    log.info("x", extra=fields(name="n", process=1, msg="m", args=2))
    line = json.loads(told()[0])
    assert (line["msg"], line["field_msg"], line["name"], line["process"]) == ("x", "m", "n", 1)


def test_what_is_not_known_is_not_told(lines):
    told = lines()
    log.info("x", extra=fields(code=None))
    assert told()[0].endswith("] x")


def test_one_of_our_errors_is_told_by_code_and_hint_without_a_traceback(lines):
    told = lines()
    log.error("read failed", exc_info=DriverHung("nvml: stuck"))
    assert len(told()) == 1
    assert 'error_code=DRIVER_HUNG err="nvml: stuck" hint=' in told()[0]


def test_an_error_that_is_not_ours_comes_with_its_traceback(lines):
    told = lines()
    try:
        dict[str, int]()["x"]
    except KeyError:
        log.exception("bug")
    assert told()[-1] == "  KeyError: 'x'"  # indented, so that its text is no line of the log
    heard = lines(shape="json")
    try:
        dict[str, int]()["x"]
    except KeyError:
        log.exception("bug")
    assert json.loads(heard()[0])["stack"].endswith("KeyError: 'x'")


@pytest.mark.parametrize("shape", ["text", "json"])
def test_secrets_are_never_told(lines, shape):
    told = lines(shape=shape)
    secret = "s3cr3t-s3cr3t-s3cr3t"
    log.info(
        "asked https://me:%s@host/ with Bearer %s",
        secret,
        secret,
        extra=fields(
            token=secret,
            Password=secret,
            authorization=f"Bearer {secret}",
            headers={"Authorization": secret, "x-api-key": secret},
            url=f"https://u:{secret}@h/",
            err=ValueError(f"bad Bearer {secret}"),
            tried=[f"Bearer {secret}"],
        ),
    )
    [line] = told()
    assert secret not in line
    assert line.count("[redacted]") == 10


def test_the_name_of_a_token_file_is_no_secret(lines):
    told = lines()
    log.info("x", extra=fields(token_file="/run/token", tokens=3))
    assert told()[0].endswith("x token_file=/run/token tokens=3")


@given(st.text(), st.text())
def test_no_value_can_forge_a_second_line(message, value):
    record = log.makeRecord("vgpuscope", logging.INFO, "f.py", 1, message, (), None, extra=fields(value=value))
    for formatter in (logs.KlogText(), logs.JsonLines()):
        assert len(formatter.format(record).splitlines()) == 1
    assert json.loads(logs.JsonLines().format(record))["msg"] == logs.clean(message)


def test_a_state_is_told_only_when_it_changes(lines):
    told = lines()
    changes = OnChange(log)
    for state in ("down", "down", "up", "up", "down"):
        changes.tell("nvml", state, level=logging.WARNING, message=state)
    assert [line.rpartition(" ")[2] for line in told()] == ["down", "up", "down"]
    assert "test_log.py" in told()[0]


def test_states_of_different_things_do_not_mix(lines):
    changes = OnChange(log)
    lines()
    assert changes.tell("a", 1, level=logging.INFO, message="x")
    assert changes.tell("b", 1, level=logging.INFO, message="x")
    assert not changes.tell("a", 1, level=logging.INFO, message="x")


def test_what_is_forgotten_is_news_again(lines):
    changes = OnChange(log)
    lines()
    for key in ("a", "b"):
        changes.tell(key, 1, level=logging.INFO, message="x")
    changes.forget("a")
    assert changes.tell("a", 1, level=logging.INFO, message="x")
    changes.keep({"a"})
    assert changes.tell("b", 1, level=logging.INFO, message="x")
    assert not changes.tell("a", 1, level=logging.INFO, message="x")


def test_a_source_is_told_when_it_goes_and_when_it_comes_back(lines):
    told = lines()
    changes = OnChange(log)
    up = SourceState(source="nvml", up=True)
    hung = SourceState(source="nvml", up=False, code="DRIVER_HUNG", message="stuck for 5.0 s")
    absent = SourceState(source="regions", up=False, absent=True, code="REGIONS_ABSENT", message="no directory")
    longer = SourceState(source="nvml", up=False, code="DRIVER_HUNG", message="stuck for 6.0 s")
    for states in ([up, absent], [up, absent], [hung, absent], [longer, absent], [up, absent]):
        changes.sources(states)
    assert [(line[0], line.partition("] ")[2]) for line in told()] == [
        ("I", "source up source=nvml"),
        ("I", 'source absent source=regions error_code=REGIONS_ABSENT err="no directory"'),
        ("W", 'source down source=nvml error_code=DRIVER_HUNG err="stuck for 5.0 s"'),
        ("I", "source up source=nvml"),
    ]
