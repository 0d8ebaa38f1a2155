"""Small suites, run as `make test` runs the large one: what fails the run, and what is flaky."""

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.environment import uncovered
from tests.paths import REPOSITORY
from tests.waiting import wait_until
from tools.testing import flaky

# only the plugins that matter here: a process of pytest starts in half of the time
PLUGINS = ("-pxdist.plugin", "-ppytest_timeout")
HYPOTHESIS = "-p_hypothesis_pytestplugin"
ONCE = """
import pathlib
def once(name):  # true for the first time only
    try:
        pathlib.Path(__file__).with_name(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
"""


class Suite:
    def __init__(self, path):
        self.path, self.cache = path / "suite", path / "cache"
        self.path.mkdir()
        self.settings("-ra", *PLUGINS)
        self.record = self.cache / "vgpuscope" / "flaky.jsonl"

    def settings(self, *flags):
        text = f"[tool.pytest.ini_options]\naddopts = {list(flags)}\ntimeout = 300\n"
        (self.path / "pyproject.toml").write_text(text)

    def file(self, name, text):
        (self.path / name).write_text(ONCE + text)

    def start(self, *flags, **variables):
        environment = {
            **{name: value for name, value in uncovered().items() if not name.startswith("PYTEST_")},
            "PYTHONPATH": str(REPOSITORY),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "XDG_CACHE_HOME": str(self.cache),
            **variables,
        }
        command = [sys.executable, "-m", "pytest", "-p", "tools.testing.alone", "--again", "-p", "no:cacheprovider"]
        return subprocess.Popen(
            [*command, "--outcome=outcome.json", *flags],
            cwd=self.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *flags, **variables):
        process = self.start(*flags, **variables)
        output, _ = process.communicate(timeout=500)
        return Result(process.returncode, output)

    def entries(self):
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []


class Result:
    def __init__(self, code, output):
        self.code, self.output = code, output

    @property
    def closing(self):
        """The numbers of the last closing line, as a reader of the log takes them."""
        line = [line for line in self.output.splitlines() if re.search(r" in \d+\.\d+s", line)][-1]
        return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", line.partition(" in ")[0])}


@pytest.fixture
def suite(tmp_path):
    return Suite(tmp_path)


@pytest.mark.parametrize("flags", [(), ("-n1", "--dist=loadgroup")], ids=["one process", "a worker"])
def test_a_test_that_always_fails_fails_the_run_and_is_not_flaky(suite, flags):
    suite.file("test_a.py", "def test_good(): pass\ndef test_bad(): assert once('never') and False, 'why'\n")
    done = suite.run(*flags)
    assert (done.code, done.closing) == (1, {"failed": 1, "passed": 1})
    assert "FAILED AGAIN, ALONE: test_a.py::test_bad" in done.output
    assert "FLAKY" not in done.output
    assert suite.entries() == []


@pytest.mark.parametrize("flags", [(), ("-n2", "--dist=loadgroup")], ids=["one process", "workers"])
def test_a_test_that_fails_once_passes_the_run_and_is_recorded(suite, flags):
    suite.file(
        "test_a.py", "def test_good(): pass\ndef test_race():\n  print('shown')\n  assert not once('a'), 'why'\n"
    )
    done = suite.run(*flags)
    assert (done.code, done.closing) == (0, {"passed": 2, "flaky": 1})
    assert "failed" not in done.output.splitlines()[-1]
    assert "FLAKY test_a.py::test_race" in done.output.splitlines()
    (entry,) = suite.entries()
    assert (entry["test"], entry["python"]) == ("test_a.py::test_race", ".".join(map(str, sys.version_info[:3])))
    assert "AssertionError: why" in entry["log"]
    assert "shown" in entry["log"]
    assert entry.keys() == set(flaky.Flaky._fields)
    assert f"seed: {entry['seed']} " in done.output
    assert (suite.path / "build" / "flaky.jsonl").read_text() == suite.record.read_text()


def test_it_runs_again_after_all_others_in_a_process_of_its_own(suite):
    suite.file(
        "test_a.py",
        "import os\nlog = pathlib.Path('ran')\n"
        "def note(name):\n  log.open('a').write(f'{name} {os.getpid()}\\n')\n"
        "def test_race():\n  note('race')\n  assert not once('a')\n"
        "def test_other(): note('other')\n"
        "def test_last(): note('last')\n",
    )
    assert suite.run().code == 0
    names, processes = zip(*(line.split() for line in (suite.path / "ran").read_text().splitlines()), strict=True)
    assert names == ("race", "other", "last", "race")
    assert len(set(processes[:3])) == 1
    assert processes[3] != processes[0]


def test_an_error_of_setup_or_teardown_is_run_again_too(suite):
    suite.file(
        "test_a.py",
        "import pytest\n"
        "@pytest.fixture\ndef before(): assert not once('a')\n"
        "@pytest.fixture\ndef after():\n  yield\n  assert not once('b')\n"
        "def test_before(before): pass\ndef test_after(after): pass\n",
    )
    done = suite.run()
    assert (done.code, done.closing) == (0, {"passed": 2, "flaky": 2})


def test_more_than_three_in_one_run_fail_it_and_are_counted_as_failed(suite):
    suite.file(
        "test_a.py",
        "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_race(n): assert not once(f'a{n}')\n",
    )
    done = suite.run()
    assert (done.code, done.closing) == (1, {"failed": 4})
    assert "FLAKY: 4 flaky tests in one run; more than 3 fail it" in done.output
    assert len(suite.entries()) == 4


def test_three_in_one_run_pass(suite):
    suite.file(
        "test_a.py",
        "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_race(n): assert not once(f'a{n}')\n",
    )
    done = suite.run()
    assert (done.code, done.closing) == (0, {"passed": 3, "flaky": 3})


def test_each_time_after_the_first_is_called_out(suite):
    suite.settings("-ra", *PLUGINS, HYPOTHESIS)  # which has a seed, a new one for each run
    suite.file("test_a.py", "def test_race(): assert not once('a')\n")
    results = []
    for _ in range(3):
        (suite.path / "a").unlink(missing_ok=True)
        results.append(suite.run())
    assert [done.code for done in results] == [0, 0, 0]
    assert ["mend it first" in done.output for done in results] == [False, True, True]
    assert "seen 1 times before" in results[1].output
    assert "seen 2 times before" in results[2].output
    assert len({entry["seed"] for entry in suite.entries()}) == 3


def test_a_test_that_was_flaky_long_ago_starts_anew(suite):
    suite.file("test_a.py", "def test_race(): assert not once('a')\n")
    old = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    suite.record.parent.mkdir(parents=True)
    line = json.dumps({"time": old, "test": "test_a.py::test_race"})
    suite.record.write_text(f"{line}\n" * 5 + "no JSON\n[]\n")
    done = suite.run()
    assert done.code == 0
    assert "mend it first" not in done.output


def test_a_test_that_crashes_its_worker_once_is_flaky_and_one_that_always_does_fails(suite):
    suite.file("test_a.py", "import os\ndef test_good(): pass\ndef test_race():\n  if once('a'): os._exit(3)\n")
    done = suite.run("-n1")
    assert (done.code, done.closing) == (0, {"passed": 2, "flaky": 1})
    assert "crashed" in suite.entries()[0]["log"]
    suite.file("test_a.py", "import os\ndef test_good(): pass\ndef test_bad(): os._exit(3)\n")
    done = suite.run("-n1")
    assert (done.code, done.closing) == (1, {"failed": 1, "passed": 1})


def test_an_error_of_the_collection_is_never_flaky(suite):
    suite.file("test_a.py", "assert not once('a')\ndef test_good(): pass\n")
    suite.file("test_b.py", "def test_race(): assert not once('b')\n")
    for flags in ((), ("-n1",), ("--continue-on-collection-errors",)):
        for name in "ab":
            (suite.path / name).unlink(missing_ok=True)
        done = suite.run(*flags)
        assert done.code != 0
        assert done.closing["error"] == 1


def test_a_test_that_exceeds_its_time_once_is_flaky(suite):
    suite.file("test_a.py", "import threading\ndef test_race():\n  if once('a'): threading.Event().wait(60)\n")
    done = suite.run("--timeout=3")
    assert (done.code, done.closing) == (0, {"passed": 1, "flaky": 1})
    assert "Timeout" in suite.entries()[0]["log"]


def test_an_interrupted_run_fails_and_runs_nothing_again(suite):
    suite.file(
        "test_a.py",
        "import threading\ndef test_race(): assert not once('a')\n"
        "def test_long():\n  pathlib.Path('waits').touch()\n  threading.Event().wait(400)\n",
    )
    process = suite.start()
    wait_until((suite.path / "waits").exists, within=300)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert Result(2, output).closing == {"failed": 1}
    assert suite.entries() == []


def test_the_first_failure_ends_a_run_that_is_to_end_with_it(suite):
    suite.file("test_a.py", "def test_race(): assert not once('a')\ndef test_good(): pass\n")
    done = suite.run("-x")
    assert (done.code, done.closing) == (1, {"failed": 1})


def test_a_group_of_xdist_is_no_part_of_a_tests_name(suite):
    suite.file(
        "test_a.py",
        "import pytest\n@pytest.mark.xdist_group('servers')\n"
        "@pytest.mark.parametrize('text', ['a@b', 'c::d/e f', '中'])\n"
        "def test_race(text): assert not once(str(len(text)) + text[0])\n",
    )
    done = suite.run("-n2", "--dist=loadgroup")
    assert (done.code, done.closing) == (0, {"passed": 3, "flaky": 3})
    names = {entry["test"] for entry in suite.entries()}
    assert names == {f"test_a.py::test_race[{text}]" for text in ("a@b", "c::d/e f", "\\u4e2d")}


def test_what_hypothesis_refutes_is_refuted_again_with_the_same_seed(suite):
    suite.file(
        "test_a.py",
        "from hypothesis import given, settings, strategies as st\n"
        "@settings(max_examples=5, database=None)\n@given(st.integers(0, 10**9))\n"
        "def test_rare(n):\n  pathlib.Path('tried').open('a').write(f'{n}\\n')\n  assert n < 10**6\n",
    )
    suite.settings("-ra", *PLUGINS, HYPOTHESIS)
    done = suite.run("--hypothesis-seed=7")
    assert (done.code, done.closing) == (1, {"failed": 1})
    tried = (suite.path / "tried").read_text().splitlines()
    assert tried == tried[: len(tried) // 2] * 2


def test_what_hypothesis_refutes_is_not_flaky_even_if_it_does_not_find_it_again(suite):
    suite.settings("-ra", *PLUGINS, HYPOTHESIS)
    suite.file(
        "test_a.py",
        "from hypothesis import given, settings, strategies as st\nFIRST = once('a')\n"
        "@settings(database=None)\n@given(st.integers())\ndef test_rare(n): assert not FIRST or n < 5\n",
    )
    done = suite.run()
    assert (done.code, done.closing) == (1, {"failed": 1})
    assert suite.entries() == []


def test_a_test_that_is_skipped_when_alone_has_not_passed(suite):
    suite.file("test_a.py", "import pytest\ndef test_race():\n  assert not once('a')\n  pytest.skip('not here')\n")
    assert suite.run().code == 1
    assert suite.entries() == []


def test_many_failures_are_not_run_again(suite):
    suite.file(
        "test_a.py",
        "import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test_bad(n): assert not once(f'a{n}')\n",
    )
    done = suite.run()
    assert (done.code, done.closing) == (1, {"failed": 11})
    assert "11 tests failed; more than 10 are not run again" in done.output


def test_in_ci_a_test_runs_again_as_in_ci(suite):
    suite.file(
        "test_a.py", "import os\ndef test_race():\n  assert os.environ['CI'] == 'true'\n  assert not once('a')\n"
    )
    assert suite.run(CI="true").code == 0


def test_the_slowest_files_are_printed_with_the_sum_of_their_tests(suite):
    for number in range(12):
        suite.file(f"test_{number}.py", "def test_a(): pass\ndef test_b(): pass\n")
    slow = "import pytest, threading\n@pytest.fixture\ndef slow(): threading.Event().wait(0.5)\n"
    suite.file("test_3.py", slow + "def test_a(slow): pass\ndef test_b(slow): pass\n")
    lines = suite.run().output.splitlines()
    begin = next(number for number, line in enumerate(lines) if "slowest files of 12" in line)
    assert len([line for line in lines[begin:] if re.search(r" s  test_\d+\.py \(2 tests\)", line)]) == 10
    seconds, name = re.fullmatch(r" +(\S+) s  (\S+) \(2 tests\)", lines[begin + 1]).groups()
    assert name == "test_3.py"
    assert float(seconds) >= 1.0
    assert re.search(r" s  all files; the run took \d+\.\d s", "\n".join(lines[begin:]))


def test_a_record_that_cannot_be_written_costs_only_the_record(suite):
    suite.cache.write_text("a file, not a directory")
    suite.file("test_a.py", "def test_race(): assert not once('a')\n")
    done = suite.run()
    assert done.code == 0
    assert "flaky.jsonl cannot be written" in done.output


def test_runs_that_end_together_do_not_mix_their_lines(tmp_path):
    write = (
        "import sys; from pathlib import Path; from tools.testing.flaky import Flaky, append\n"
        "for n in range(50):\n"
        "  append(Path(sys.argv[1]), [Flaky('t', 'c', 'p', f'{sys.argv[2]}-{n}', 1, 1.0, 1.0, 'x' * 9000)])"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", write, str(tmp_path / "a.jsonl")]
    writers = [subprocess.Popen([*command, str(number)], env=environment) for number in range(4)]
    assert [writer.wait(300) for writer in writers] == [0] * 4
    tests = [json.loads(line)["test"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert sorted(tests) == sorted(f"{number}-{n}" for number in range(4) for n in range(50))
