"""One grammar for all commands: which switch is where, and why it is not where it is absent."""

import argparse
import ast
import re

import pytest

from tests.paths import REPOSITORY
from vgpuscope import cli
from vgpuscope.model.service import ANALYZER_PORT, default_url

SWITCHES = ("--url", "--namespace", "--json", "--csv", "--lang", "--watch", "--wide")

SERVICE = "a service: its settings are flags"
LOCAL = "asks no service"
NESTED = "the answer is no table"
NO_TABLE = "prints no table"
ONCE = "the answer does not change while one looks"
CHANGES = "changes something once"
CODES = "prints names and values, which have no language"
GRAMMAR: dict[str, dict[str, str]] = {  # command → the switches that are absent, with the reason; all others are there
    **{
        name: dict.fromkeys(SWITCHES, SERVICE)
        for name in ("agent", "cluster", "analyzer", "extender", "plugin", "standalone", "demo")
    },
    "top": {
        "--namespace": "--filter takes any name",
        "--csv": "the sample of a node is no table",
        "--lang": "columns and states are the words of nvidia-smi and of the metrics",
        "--watch": "is live already; --interval sets how often",
    },
    "nodes": {"--namespace": "a node has no namespace"},
    "gpus": {},
    "pending": {},
    "why": {
        "--namespace": "the pod is named NAMESPACE/POD",
        "--csv": NESTED,
        "--watch": "decisions are a history",
    },
    "fit": {"--csv": NESTED, "--watch": "asks what would be now"},
    "analyze": {
        "--url": "analyses itself, by --prometheus-url or --targets",
        "--namespace": "prometheus.query_condition selects tenants",
        "--watch": "an analysis takes a window; `results --watch` watches an analyzer",
    },
    "results": {},
    "waste": {},
    "notify": dict.fromkeys(SWITCHES, "sends one message from this process"),
    "reclaim": {},
    "reclaim list": {},
    **{
        f"reclaim {verb}": {
            "--namespace": "a case is named NAMESPACE/POD",
            **dict.fromkeys(("--json", "--csv", "--watch", "--wide"), CHANGES),
        }
        for verb in ("approve", "snooze", "exempt", "resume", "restore", "stop", "start")
    },
    "reclaim audit": {
        "--namespace": "--case names one case",
        "--json": "--export jsonl prints the whole log",
        "--csv": "--export csv prints the whole log",
        "--watch": "the log is a history",
    },
    "backtest": {"--namespace": "a policy is of the whole fleet", "--csv": NESTED, "--watch": ONCE},
    "doctor": {
        "--namespace": "checks the whole chain",
        "--csv": NESTED,
        "--watch": ONCE,
        "--wide": "its lines are folded, and nothing is hidden",
    },
    "config": dict.fromkeys(SWITCHES, NO_TABLE),
    "config print": {
        **dict.fromkeys(("--url", "--namespace", "--watch"), LOCAL),
        "--csv": "--json has the values with their types",
        "--lang": CODES,
        "--wide": "no value is cut",
    },
    "alive": {
        **dict.fromkeys(SWITCHES, "answers with its exit code"),
    },
    "completion": dict.fromkeys(SWITCHES, LOCAL),
    "help": dict.fromkeys(SWITCHES, LOCAL),
}


def parsers(parser: argparse.ArgumentParser, name: str = ""):
    """Every command with its parser, also the commands of commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield f"{name} {word}".strip(), inner
                yield from parsers(inner, f"{name} {word}".strip())


PARSERS = dict(parsers(cli.parser()))
each_command = pytest.mark.parametrize("name", PARSERS)


def test_the_table_names_every_command():
    assert list(GRAMMAR) == sorted(PARSERS, key=list(GRAMMAR).index)
    assert set(GRAMMAR) == set(PARSERS)


@each_command
def test_a_command_has_every_switch_that_no_reason_keeps_away(name):
    own = set(SWITCHES) & set(PARSERS[name]._option_string_actions)
    assert own == set(SWITCHES) - set(GRAMMAR[name])


@each_command
def test_a_switch_is_spelled_the_same_everywhere(name):
    shapes = {
        "--url": ("URL", None),
        "--namespace": ("NAME", None),
        "--json": (None, None),
        "--csv": (None, None),
        "--lang": (None, ("en", "zh")),
        "--watch": ("SECONDS", None),
        "--wide": (None, None),
    }
    for flag, shape in shapes.items():
        if action := PARSERS[name]._option_string_actions.get(flag):
            assert (action.metavar, action.choices) == shape
    if "--namespace" in PARSERS[name]._option_string_actions:
        assert "-n" in PARSERS[name]._option_string_actions


@each_command
def test_the_help_of_a_command_ends_with_its_exit_codes(name):
    text = PARSERS[name].format_help()
    codes = re.findall(r"^  (\d+) ", text.partition("\nexit codes:\n")[2], re.MULTILINE)
    assert codes == sorted(codes, key=int)
    assert {"0", "2"} <= set(codes)


@each_command
def test_a_help_says_that_ctrl_c_ends_watch_with_success(name):
    parser = PARSERS[name]
    watches = "--watch" in parser._option_string_actions
    assert ("0    success, or --watch ended by Ctrl-C\n" in parser.format_help()) == watches


@each_command
def test_help_with_a_command_prints_what_its_own_help_prints(name, capsys):
    printed = []
    for words in (["help", *name.split()], [*name.split(), "--help"]):
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        assert end.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_help_alone_lists_all_commands(capsys):
    assert cli.main(["help"]) == cli.main([]) == 0
    first, second = capsys.readouterr().out.split("vgpuscope 0.")[1:]
    assert first == second


def test_help_of_an_unknown_command_names_the_nearest(capsys):
    assert cli.main(["help", "reslts"]) == 2
    assert "hint: Did you mean results?" in capsys.readouterr().err


# --- the address ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["nodes", "gpus", "pending", "results", "waste", "top --once", "why ml/a"])
def test_an_address_is_given_by_the_switch_or_by_its_place_and_not_twice(command, capsys):
    outcomes = []
    for words in (["127.0.0.1:1"], ["--url", "127.0.0.1:1"]):
        assert cli.main([*command.split(), *words]) == 1
        outcomes.append(capsys.readouterr().err)
    assert outcomes[0] == outcomes[1]
    assert "http://127.0.0.1:1:" in outcomes[0]
    assert cli.main([*command.split(), "127.0.0.1:2", "--url", "127.0.0.1:1"]) == 2
    assert "address" in capsys.readouterr().err


def test_an_address_of_a_command_is_the_one_that_was_given_before_its_verb():
    args, _ = cli.parser(["reclaim"]).parse_known_args(["reclaim", "--url", "there", "stop"])
    assert args.url == "there"
    args, _ = cli.parser(["reclaim"]).parse_known_args(["reclaim", "stop"])
    assert args.url == default_url(ANALYZER_PORT)


@pytest.mark.parametrize("words", [["nodes", "--watch", "--json"], ["results", "--watch=0.5"], ["waste", "--watch=x"]])
def test_what_cannot_be_watched_is_refused(words, capsys):
    assert cli.main(words) == 2
    assert "--watch" in capsys.readouterr().err


# --- hints ------------------------------------------------------------------------------------------------------------


def test_a_fault_in_an_argument_has_a_hint_of_its_own():
    """The usual hint is about settings: `config print` says nothing about a manifest that is missing."""
    for path in sorted((REPOSITORY / "src/vgpuscope/commands").rglob("*.py")):
        for call in [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]:
            if isinstance(call.func, ast.Name) and call.func.id == "ConfigInvalid":
                assert "hint" in {keyword.arg for keyword in call.keywords}, f"{path.name}:{call.lineno}"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["fit", "-f", "/nowhere/pod.yaml"], "hint: Check the path of -f; `-f -` reads standard input"),
        (["backtest", "--policy", "/nowhere/policy.yaml"], "hint: Check the path of --policy."),
        (["agent", "--config", "/nowhere/c.yaml"], "hint: Check the path; --config none reads no file."),
    ],
)
def test_a_file_that_is_missing_is_no_matter_of_settings(words, hint, capsys):
    assert cli.main(words) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "No such file or directory" in first
    assert second.startswith(hint)


def test_all_faults_of_a_settings_file_are_told_at_once(tmp_path, capsys):
    file = tmp_path / "c.yaml"
    file.write_text(
        "agent: {interval: 3, sample_interval: 0}\nanalyser: {}\nthresholds: {low_utilization: x}\nprometheus: 4\n"
    )
    assert cli.main(["config", "print", "--config", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[2].split()[0] for line in lines[::2]] == [
        "agent.interval",
        "analyser",
        "prometheus",
        "agent.sample_interval",
        "thresholds.low_utilization",
    ]
    assert all(line.startswith("hint: ") for line in lines[1::2])


def test_all_contradictions_of_a_settings_file_are_told_at_once(tmp_path, capsys):
    file = tmp_path / "c.yaml"
    file.write_text("thresholds: {idle: 50, low_utilization: 20}\nai: {enabled: true, provider: compatible}\n")
    code = cli.main(["config", "print", "--config", str(file)])
    lines = capsys.readouterr().err.splitlines()
    assert code == 2
    assert "thresholds" in lines[0]
    assert "ai." in lines[2]
