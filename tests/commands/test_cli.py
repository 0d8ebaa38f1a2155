"""The command line: what it prints, and how it ends."""

import importlib
import json
import re
import subprocess
import sys
import types

import pytest

from vgpuscope import cli
from vgpuscope.config import SETTINGS, SettingsFile
from vgpuscope.http import address
from vgpuscope.model.errors import DriverAbsent
from vgpuscope.version import __version__

FLAGS_OTHERS_RELY_ON = [
    "--config",
    "--listen",
    "--node-name",
    "--hook-path",
    "--proc-root",
    "--pods",
    "--kubeconfig",
    "--podresources-socket",
    "--dcgm",
    "--cgroup-root",
    "--command-lines",
    "--sample-interval",
    "--families",
    "--ratio",
    "--ratio-file",
    "--web.config.file",
    "--once",
    "--v",
    "--log-format",
]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("NODE_NAME", "CURRENT_NODE_NAME", "HOOK_PATH", "HAMI_RESYNC_INTERVAL", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def called(monkeypatch):
    """Stand-ins for the services: what they were called with."""
    calls = []

    def install(name):
        module = types.ModuleType(name)
        vars(module)["main"] = lambda *args, **kwargs: calls.append((args, kwargs)) or 0
        package, _, short = name.rpartition(".")
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(importlib.import_module(package), short, module, raising=False)

    for name in ("vgpuscope.services.agent.process", "vgpuscope.commands.actions.top", "vgpuscope.sim.demo"):
        install(name)
    return calls


def ran(*args):
    return subprocess.run(
        [sys.executable, "-m", "vgpuscope", *args], capture_output=True, text=True, timeout=60, check=False
    )


def test_without_a_command_an_overview_is_printed(capsys):
    assert cli.main([]) == 0
    assert "vgpuscope top [URL]" in capsys.readouterr().out


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"vgpuscope {__version__}\n"


def test_the_agent_takes_exactly_the_flags_others_rely_on(capsys):
    with pytest.raises(SystemExit):
        cli.main(["agent", "--help"])
    found = set(re.findall(r"\[(--[\w.-]+)", capsys.readouterr().out.split("\n\n")[0]))
    assert found == set(FLAGS_OTHERS_RELY_ON)


def test_the_agent_gets_the_configuration_and_whether_to_run_once(called):
    assert cli.main(["agent", "--sample-interval", "0.5", "--ratio=2", "--once", "--v=6"]) == 0
    [((config,), kwargs)] = called
    assert (config.agent.sample_interval, config.agent.ratio, config.log.v) == (0.5, 2.0, 6)
    assert kwargs == {"once": True, "file": SettingsFile("none", "")}


def test_top_gets_plain_arguments(called):
    cli.main(["top", "http://n1:9394", "--json", "--interval", "500ms", "--sort", "sm", "--filter", "ml", "--no-color"])
    [(_, kwargs)] = called
    assert kwargs == {
        "url": "http://n1:9394",
        "once": False,
        "wide": False,
        "as_json": True,
        "interval": 0.5,
        "sort": "sm",
        "pattern": "ml",
        "processes": False,
        "color": False,
    }


def test_colour_is_off_where_the_environment_says_so(called, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    cli.main(["top"])
    assert called[0][1]["color"] is False


def test_the_demo_gets_port_seed_window_and_mode(called):
    cli.main(["demo", "--port", "20000", "--seed", "7", "--window-minutes", "0.5"])
    assert called[0][1] == {"base_port": 20000, "seed": 7, "directory": None, "window": 0.5, "live": None}
    cli.main(["demo", "--live-reclaim"])
    assert called[1][1]["live"] == "control"
    cli.main(["demo", "--live-reclaim", "scale"])
    assert called[2][1]["live"] == "scale"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["agent", "--sample-interval", "0"], "agent.sample_interval: '0' from flag --sample-interval: expected"),
        (["agent", "--no-such-flag"], "--no-such-flag"),
        (["agent", "--listen"], "--listen"),
        (["agent", "--sample", "1"], "--sample"),  # abbreviations would break when a flag is added
        (["agent", "--config", "/nowhere.yaml"], "/nowhere.yaml"),
        (["agent", "--ratio", "0"], "RATIO_INVALID"),
        (["agents"], "agents"),
        (["demo", "--window-minutes", "0"], "'0' is not from 0.1 to 60 minutes"),
        (["results", "--json", "--csv"], "not allowed with"),
        (["analyzer", "--interval", "0"], "scheduler.interval: '0' from flag --interval"),
        (["top", "--interval", "0"], "0.1 to 3600"),
        (["demo", "--port", "0"], "1 to 65535"),
        (["config", "print", "--pods", "x"], "agent.pods"),
    ],
)
def test_a_bad_question_is_answered_by_a_line_a_hint_and_exit_code_2(args, words, capsys):
    assert cli.main(args) == 2
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert out == ""
    assert re.match(r"vgpuscope: [A-Z_]+: ", first)
    assert words in first
    assert second.startswith("hint: ")


def test_a_bad_value_ends_the_process_with_2_and_no_traceback():
    end = ran("agent", "--sample-interval", "0")
    assert end.returncode == 2
    assert "agent.sample_interval" in end.stderr
    assert "Traceback" not in end.stderr


def test_a_busy_port_ends_the_agent_with_one_line_and_1():
    with address.bind("127.0.0.1:0") as taken:
        listen = address.shown(taken)
        end = ran("agent", "--listen", listen, "--pods", "none", "--podresources-socket", "none")
    assert end.returncode == 1
    assert f"vgpuscope: PORT_BUSY: cannot listen on {listen}: the port is in use\nhint: " in end.stderr
    assert "Traceback" not in end.stderr


def test_a_broken_web_configuration_ends_the_agent_with_2(tmp_path):
    file = tmp_path / "web.yaml"
    file.write_text("basic_auth_users: {me: plain}")
    end = ran("agent", "--listen", "127.0.0.1:0", "--web.config.file", str(file))
    assert end.returncode == 2
    assert "vgpuscope: WEB_CONFIG_INVALID: basic_auth_users.me: not a bcrypt hash" in end.stderr
    assert "Traceback" not in end.stderr


@pytest.mark.attack
@pytest.mark.parametrize("text", ["", "# nothing", "bearer_tokens: []"])
def test_a_web_configuration_that_protects_nothing_ends_the_agent_with_2(tmp_path, text):
    file = tmp_path / "web.yaml"
    file.write_text(text)
    end = ran("agent", "--listen", "127.0.0.1:0", "--web.config.file", str(file))
    assert end.returncode == 2
    assert f"vgpuscope: WEB_CONFIG_INVALID: {file}: has neither users, tokens nor TLS\nhint: " in end.stderr
    assert "unguarded: true" in end.stderr


def test_an_error_of_a_service_is_one_line_and_its_exit_code(called, monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise DriverAbsent("no library")

    monkeypatch.setattr(sys.modules["vgpuscope.services.agent.process"], "main", fail)
    assert cli.main(["agent"]) == 1
    assert capsys.readouterr().err.startswith("vgpuscope: DRIVER_ABSENT: no library\nhint: ")


def test_an_interrupt_is_quiet(called, monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["vgpuscope.services.agent.process"], "main", interrupted)
    assert cli.main(["agent"]) == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m vgpuscope config print | head -1; exit ${{PIPESTATUS[0]}}"
    end = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (end.returncode, end.stderr) == (0, "")


def test_config_print_shows_every_setting_and_where_it_came_from(tmp_path, monkeypatch, capsys):
    file = tmp_path / "c.yaml"
    file.write_text("log: {v: 5}")
    monkeypatch.setenv("NODE_NAME", "n1")
    assert cli.main(["config", "print", "--config", str(file), "--listen", ":1"]) == 0
    rows = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == [s.path for s in SETTINGS]
    assert ["agent.listen", ":1", "flag"] in rows
    assert ["agent.node_name", "n1", "env NODE_NAME"] in rows
    assert ["log.v", "5", f"file {file}"] in rows
    assert ["agent.hook_path", "/usr/local/vgpu", "default"] in rows


def test_config_print_as_json_holds_values(capsys):
    assert cli.main(["config", "print", "--json", "--families", "native"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["agent.families"] == {"value": ["native"], "from": "flag"}
    assert content["agent.ratio"] == {"value": None, "from": "default"}


def test_looking_at_the_settings_imports_no_service():
    code = (
        "import sys; from vgpuscope.cli import main; main(['config', 'print']);"
        "print([m for m in sys.modules if m.split('.')[0] in ('uvicorn', 'starlette', 'pynvml', 'lightkube', 'rich')])"
    )
    end = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert end.stdout.splitlines()[-1] == "[]"


# --- hints --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "first", "hint"),
    [
        (["reslts"], "unknown command 'reslts'", "Did you mean results? Possible: agent, "),
        (["xyzzy"], "unknown command 'xyzzy'", "Possible: agent, "),
        (["agent", "--listn", ":1"], "unknown argument '--listn'", "Did you mean --listen? "),
        (["agent", "--sample", "1"], "unknown argument '--sample'", "`vgpuscope agent --help`"),
        (["results", "--lw"], "unknown argument '--lw'", "Did you mean --low? "),
        (["config", "prnt"], "unknown command 'prnt'", "Did you mean print? "),
        (["config", "print", "--jsn"], "unknown argument '--jsn'", "Did you mean --json? "),
        (["agent", "--log-format", "jsn"], "log.format: 'jsn' from flag --log-format", "Did you mean json?"),
        (["agent", "--families", "natve"], "agent.families: 'natve' from flag --families", "Did you mean native?"),
        (["agent", "--pods", "kublet"], "agent.pods: 'kublet' from flag --pods", "Did you mean kubelet?"),
        (["top", "--sort", "memry"], "unknown value 'memry' for --sort", "Did you mean memory? Possible: gpu, "),
        (["top", "http://a", "http://b"], "unknown argument 'http://b'", "`vgpuscope top --help`"),
    ],
)
def test_a_hint_begins_with_the_nearest_word(args, first, hint, capsys):
    assert cli.main(args) == 2
    line, second = capsys.readouterr().err.splitlines()
    assert line.startswith(f"vgpuscope: CONFIG_INVALID: {first}")
    assert second.startswith("hint: ")
    assert hint in second
    assert not hint.startswith("Did") or second.startswith(f"hint: {hint}")


def test_every_command_writes_an_error_in_the_same_two_lines(capsys):
    for args in (["top", "--once"], ["nodes"], ["gpus"], ["pending"], ["results"]):
        assert cli.main([*args, "127.0.0.1:1"]) == 1
        line, second = capsys.readouterr().err.splitlines()
        assert line.startswith("vgpuscope: SOURCE_DOWN: no ")
        assert second.startswith("hint: Start one with `vgpuscope ")


# --- which file of settings is read ---------------------------------------------------------------------------------


GPU_OOUR_FILE = """\
prometheus: {url: "http://your-prometheus:9090", query_condition: '{pod!=""}', time_window_min: 10, step: "30s"}
scoring: {gpu_util_weight: 0.5, mem_copy_weight: 0.2, mem_used_weight: 0.2, power_weight: 0.1}
thresholds: {low_utilization: 25, idle: 10}
scheduler: {interval: 300, max_workers: 8}
gpu_defaults: {memory_mb: 32000, power_w: 250}
control: {enabled: false, api_url: "http://your-control-service/api/optimize", timeout: 5}
ai: {enabled: false, api_url: "", api_key: "", model: "gpt-4", threshold: 0.7}
logging: {level: "INFO", format: "%(asctime)s"}
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys, *args):
    code = cli.main(["config", "print", "--json", *args])
    return json.loads(capsys.readouterr().out)["thresholds.low_utilization"] if code == 0 else code


def test_the_config_yaml_of_gpu_oour_is_read_from_the_working_directory(directory, capsys):
    (directory / "config.yaml").write_text(GPU_OOUR_FILE)
    assert printed(capsys) == {"value": 25, "from": f"file {directory / 'config.yaml'}"}


def test_a_file_that_is_named_is_read_instead_and_none_reads_no_file(directory, capsys, monkeypatch):
    (directory / "config.yaml").write_text(GPU_OOUR_FILE)
    (directory / "other.yaml").write_text("thresholds: {low_utilization: 30}")
    assert printed(capsys, "--config", "other.yaml") == {"value": 30, "from": "file other.yaml"}
    assert printed(capsys, "--config", "none") == {"value": 20, "from": "default"}
    monkeypatch.setenv("VGPUSCOPE_CONFIG", "other.yaml")
    assert printed(capsys)["value"] == 30
    assert printed(capsys, "--config", "none")["value"] == 20
    monkeypatch.setenv("VGPUSCOPE_CONFIG", "none")
    assert printed(capsys)["value"] == 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server: {port: 80}\nthresholds: {idle: 5}\n", "unknown section 'server'"),
        ("- a\n- b\n", "expected keys and values"),
        ("a: [", "did not find"),
        ("{{ template }}", "config.yaml"),
    ],
)
@pytest.mark.parametrize("command", [["analyzer"], ["analyze", "--once"], ["agent"], ["cluster"], ["config", "print"]])
def test_a_config_yaml_of_another_program_is_named_with_the_way_around_it(directory, capsys, command, text, said):
    (directory / "config.yaml").write_text(text)
    assert cli.main(command) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert str(directory / "config.yaml") in first
    assert "working directory" in first
    assert said in first
    assert hint.startswith("hint: ")
    assert "--config none" in hint


def test_a_typing_error_in_the_config_yaml_is_met_with_the_nearest_word(directory, capsys):
    (directory / "config.yaml").write_text("Promethues: {url: 'http://x'}\n")
    assert cli.main(["analyzer"]) == 2
    assert "hint: Did you mean prometheus? " in capsys.readouterr().err


def test_a_directory_named_config_yaml_is_not_a_file_of_settings(directory, capsys):
    (directory / "config.yaml").mkdir()
    assert printed(capsys)["from"] == "default"


@pytest.mark.parametrize("command", ["agent", "cluster", "analyzer"])
def test_the_log_says_which_file_was_read_and_why(directory, command):
    """The listener's port is taken, so the process ends by itself after its first lines."""
    taken = address.bind("127.0.0.1:0")
    with taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        text = f"{command}: {{listen: '{listen}'}}\nlog: {{format: json}}\nprometheus: {{url: 'http://127.0.0.1:9'}}\n"
        (directory / "config.yaml").write_text(text)
        done = ran(command)
    assert done.returncode == 1, done.stderr
    line = json.loads(done.stderr.splitlines()[0])
    assert line["msg"] == "settings read"
    assert (line["file"], line["named_by"]) == (str(directory / "config.yaml"), "working directory")
