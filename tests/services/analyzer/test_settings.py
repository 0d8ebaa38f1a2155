"""Settings while running: read again when the file changes, changed by the API, never half."""

import os
import threading

import pytest
import yaml
from msgspec.structs import replace

from vgpuscope.config import Config
from vgpuscope.config.analyzer import VerdictConfig
from vgpuscope.model.errors import BodyInvalid, ConfigInvalid, ReadOnly
from vgpuscope.services.analyzer.cycle import _rules as rules_of
from vgpuscope.services.analyzer.settings.settings import Settings

FILE = """\
# written by hand
prometheus: {url: "http://prometheus:9090"}
thresholds:
  low_utilization: 20
analyzer:
  config_updates: %s
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config.yaml"


def settings(file=None, *, mode="memory", environ=(), flags=(), **more) -> Settings:
    if file is not None and not file.exists():
        file.write_text(FILE % mode)
    found = dict(flags) if file else {"prometheus.url": "http://x", "analyzer.config_updates": mode, **dict(flags)}
    return Settings(flags=found, environ=dict(environ), file=str(file) if file else None, **more)


def low(found: Settings) -> float:
    return found.config.thresholds.low_utilization


def settled(found: Settings) -> bool:
    """Whether a file that nobody writes to any more is found to have changed."""
    found.file_changed()
    return found.file_changed()


def test_the_environment_weighs_more_than_the_file_and_a_change_more_than_both(file):
    found = settings(file, environ={"THRESHOLD": "30"})
    assert low(found) == 30
    found.update({"thresholds.low_utilization": 40})
    assert low(found) == 40


def test_a_change_says_what_is_in_effect():
    assert settings().update({"scheduler.interval": "5m", "thresholds.idle": 5}) == {
        "scheduler.interval": 300,
        "thresholds.idle": 5,
    }


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"thresholds.idle": 5, "scheduler.interval": 0}, ConfigInvalid),
        ({"thresholds.idle": 5, "thresholds.low_utilization": 4}, ConfigInvalid),
        ({"thresholds.idle": 5, "verdict.idle_enter": 0.5}, ConfigInvalid),
        ({"thresholds.idle": 5, "scoring.power_weight": float("nan")}, ConfigInvalid),
        ({"thresholds.idle": 5, "thresholds.nothing": 1}, ConfigInvalid),
        ({"thresholds.idle": 5, "analyzer.listen": "0.0.0.0:1"}, BodyInvalid),
        ({"thresholds.idle": 5, "prometheus.password": "x"}, BodyInvalid),
        ({"thresholds.idle": 5, "ai.enabled": True}, ConfigInvalid),
        ({"thresholds.idle": 5, "ai.api_url": "http://evil"}, BodyInvalid),
        ({"thresholds.idle": 5, "ai.api_key": "k"}, BodyInvalid),
    ],
)
@pytest.mark.parametrize("mode", ["memory", "file"])
def test_a_change_that_is_wrong_in_one_part_changes_nothing(file, mode, changes, error):
    found = settings(file, mode=mode)
    before, text = found.config, file.read_text()
    with pytest.raises(error) as refused:
        found.update(changes)
    assert (found.config, file.read_text()) == (before, text)
    assert "flag" not in str(refused.value)


def test_refused_means_refused(file):
    with pytest.raises(ReadOnly):
        settings(file, mode="refuse").update({"thresholds.idle": 5})


def test_a_change_in_memory_outlasts_a_new_file_but_not_the_process(file):
    found = settings(file)
    found.update({"thresholds.low_utilization": 40})
    file.write_text(FILE % "memory" + "scheduler: {interval: 7}\n")
    found.reload()
    assert (low(found), found.config.scheduler.interval) == (40, 7)
    assert low(settings(file)) == 20


def test_a_change_that_is_persisted_is_there_after_a_new_start(file):
    found = settings(file, mode="file")
    found.update({"thresholds.low_utilization": 40, "scoring.power_weight": 0.3})
    assert not settled(found)
    assert yaml.safe_load(file.read_text())["thresholds"] == {"low_utilization": 40}
    again = settings(file)
    assert (low(again), again.config.scoring.power_weight, again.config.prometheus.url) == (
        40,
        0.3,
        "http://prometheus:9090",
    )


def test_after_a_persisted_change_the_file_still_counts(file):
    found = settings(file, mode="file")
    found.update({"thresholds.low_utilization": 40})
    file.write_text(FILE % "file")
    found.reload()
    assert low(found) == 20


def test_what_the_environment_sets_cannot_be_persisted(file):
    found = settings(file, mode="file", environ={"THRESHOLD": "30"})
    with pytest.raises(BodyInvalid, match="env THRESHOLD"):
        found.update({"thresholds.low_utilization": 40})
    assert low(found) == 30


def test_a_file_that_cannot_be_written_is_no_place_to_persist(file, monkeypatch):
    found = settings(file, mode="file")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ReadOnly, match="No space left"):
        found.update({"thresholds.low_utilization": 40})
    assert low(found) == 20
    assert os.listdir(file.parent) == [file.name]


def test_without_a_file_nothing_can_be_persisted():
    with pytest.raises(ReadOnly, match="no file"):
        settings(mode="file").update({"thresholds.idle": 5})


def test_who_reads_the_file_meanwhile_reads_a_whole_one(file):
    found = settings(file, mode="file")
    stop, torn = threading.Event(), []

    def read():
        while not stop.is_set():
            if "thresholds" not in (yaml.safe_load(file.read_text()) or {}):
                torn.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(50):
        found.update({"thresholds.low_utilization": 20 + number})
    stop.set()
    reader.join(10)
    assert not torn


def test_a_persisted_change_keeps_a_link_and_the_rights_of_the_file(tmp_path):
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_text(FILE % "file")
    real.chmod(0o640)
    link.symlink_to(real)
    settings(link).update({"thresholds.low_utilization": 40})
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert "40" in real.read_text()


@pytest.mark.parametrize(
    "text",
    ["thresholds: {low_util", "thresholds: 7", "nothing: {a: 1}", "thresholds: {low_utilization: x}", "\0", "- a"],
)
def test_a_file_that_is_no_good_changes_nothing(file, text):
    found = settings(file)
    file.write_text(text)
    assert settled(found)
    with pytest.raises(ConfigInvalid):
        found.reload()
    assert low(found) == 20
    assert not settled(found)


def test_a_file_is_read_once_nobody_writes_to_it_any_more(file):
    found = settings(file)
    file.write_text("prometheus: {url: 'http://p'}\n")
    assert not found.file_changed()
    file.write_text("prometheus: {url: 'http://p'}\nthresholds: {low_utilization: 33}\n")
    assert not found.file_changed()
    assert found.file_changed()


def test_a_file_that_is_away_is_waited_for(file):
    found = settings(file)
    file.unlink()
    assert not settled(found)
    file.write_text(FILE % "memory" + "scheduler: {interval: 7}\n")
    assert settled(found)
    found.reload()
    assert found.config.scheduler.interval == 7


def test_what_needs_a_new_start_is_told(file):
    found = settings(file)
    file.write_text("prometheus: {url: 'http://p'}\nanalyzer: {listen: '127.0.0.1:1', history: none}\n")
    assert found.reload() == ("analyzer.listen",)


def test_what_the_process_cannot_use_is_refused_as_a_whole(file):
    def check(config):
        if config.scheduler.interval == 7:
            raise ConfigInvalid("not seven")

    found = settings(file, check=check)
    with pytest.raises(ConfigInvalid, match="seven"):
        found.update({"thresholds.idle": 5, "scheduler.interval": 7})
    assert found.config.thresholds.idle == 10


@pytest.mark.parametrize("name", VerdictConfig.__struct_fields__)
def test_every_setting_of_the_verdict_takes_effect(name):
    usual = Config()
    changed = replace(usual, verdict=replace(usual.verdict, **{name: 0.07 if name != "max_age_intervals" else 5}))
    assert rules_of(changed) != rules_of(usual)
