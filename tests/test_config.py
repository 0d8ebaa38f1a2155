"""The configuration: which of several values counts, and what is refused with which words."""

import socket
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from vgpuscope.catalog.metric import ALL_FAMILIES, FAMILIES
from vgpuscope.config import SETTINGS, load, loading, pods_source, settings_of
from vgpuscope.model.errors import ConfigInvalid, RatioInvalid
from vgpuscope.runtime import duration


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "vgpuscope.yaml"
        path.write_text(text)
        return str(path)

    return write


def refused(*, flags=None, environ=None, file=None, error=ConfigInvalid):
    with pytest.raises(error) as caught:
        load(flags=flags or {}, environ=environ or {}, file=file)
    assert caught.value.exit_code == 2
    return caught.value


def said(*, flags=None, file=None):
    """What a refusal says; None when all is well."""
    try:
        load(flags=flags or {}, environ={}, file=file)
    except ConfigInvalid as e:
        return str(e)
    return None


def agent(*, flags=None, environ=None, file=None):
    return load(flags=flags or {}, environ=environ or {}, file=file).config.agent


intervals = st.none() | st.floats(min_value=0.05, max_value=3600, allow_nan=False)


@given(flag=intervals, env=intervals, in_file=intervals)
def test_flag_beats_environment_beats_file_beats_default(tmp_path_factory, flag, env, in_file):
    path = tmp_path_factory.getbasetemp() / "precedence.yaml"
    path.write_text("agent:\n" + (f"  sample_interval: {in_file!r}\n" if in_file is not None else ""))
    flags = {} if flag is None else {"agent.sample_interval": repr(flag)}
    environ = {} if env is None else {"VGPUSCOPE_AGENT_SAMPLE_INTERVAL": repr(env)}
    loaded = load(flags=flags, environ=environ, file=str(path))
    given = [
        (flag, "flag"),
        (env, "env VGPUSCOPE_AGENT_SAMPLE_INTERVAL"),
        (in_file, f"file {path}"),
        (1.0, "default"),
    ]
    value, origin = next(pair for pair in given if pair[0] is not None)
    assert loaded.config.agent.sample_interval == pytest.approx(value)
    assert loaded.origins["agent.sample_interval"] == origin


def test_our_variable_beats_hamis_and_hamis_beats_the_file(file):
    path = file("agent: {node_name: from-file}")
    environ = {"CURRENT_NODE_NAME": "other", "NODE_NAME": "hami"}
    assert agent(environ=environ, file=path).node_name == "hami"
    assert agent(environ={"CURRENT_NODE_NAME": "other"}, file=path).node_name == "other"
    assert agent(environ=environ | {"VGPUSCOPE_AGENT_NODE_NAME": "ours"}, file=path).node_name == "ours"


def test_hamis_variables_are_understood():
    got = agent(environ={"HOOK_PATH": "/opt/vgpu", "NODE_NAME": "n1", "HAMI_RESYNC_INTERVAL": "1h30m"})
    assert (got.hook_path, got.node_name, got.resync_interval) == ("/opt/vgpu", "n1", 5400.0)


def test_without_a_name_the_node_is_called_like_the_host():
    loaded = load(flags={}, environ={}, file=None)
    assert loaded.config.agent.node_name == socket.gethostname().lower()
    assert loaded.origins["agent.node_name"] == "default"


def test_the_file_can_be_named_by_a_variable(file):
    assert agent(environ={"VGPUSCOPE_CONFIG": file("agent: {listen: ':1'}")}).listen == ":1"


def test_a_variable_set_to_nothing_is_not_set():
    assert agent(environ={"VGPUSCOPE_AGENT_LISTEN": "", "HOOK_PATH": " "}).listen == "0.0.0.0:9394"


def test_an_empty_file_and_an_empty_section_change_nothing(file):
    assert agent(file=file("")) == agent(file=file("agent:\nlog:\n")) == agent()


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("agent.sample_interval", "0", "expected a number >= 0.05"),
        ("agent.sample_interval", "-1", "expected a number >= 0.05"),
        ("agent.sample_interval", "nan", "expected a number >= 0.05"),
        ("agent.sample_interval", "inf", "expected a number <= 3600"),
        ("agent.sample_interval", "soon", "a duration such as 5m"),
        ("agent.listen", "9394", "expected HOST:PORT"),
        ("agent.listen", "::1:9394", "in brackets"),
        ("agent.listen", "[::zz]:9394", "not an IPv6 address"),
        ("agent.listen", "localhost:99999", "0 to 65535"),
        ("agent.listen", "localhost:http", "0 to 65535"),
        ("agent.pods", "kubelets", "expected kube, kubelet, file:PATH, none or auto"),
        ("agent.pods", "file:", "expected kube, kubelet, file:PATH, none or auto"),
        ("agent.families", "native,nativ", "'nativ' is not a metric family; allowed: native"),
        ("agent.families", "", "at least one of native"),
        ("agent.kubelet_url", "10.0.0.1:10250", "expected https://HOST:PORT"),
        ("agent.kubelet_insecure", "maybe", "expected true or false"),
        ("agent.hook_path", "", "length >= 1"),
        ("agent.resync_interval", "0s", ">= 1"),
        ("log.v", "11", "expected a whole number <= 10"),
        ("log.v", "x", "expected a whole number"),
        ("log.format", "xml", "expected text or json"),
    ],
)
def test_a_bad_value_is_refused_with_path_value_and_reason(path, value, reason):
    message = str(refused(flags={path: value}))
    assert path in message
    assert repr(value) in message
    assert reason in message


@pytest.mark.parametrize("value", ["0", "-2", "nan", "inf", "two", "1e999"])
def test_a_bad_ratio_says_what_a_ratio_is(value):
    error = refused(flags={"agent.ratio": value}, error=RatioInvalid)
    assert "agent.ratio" in str(error)
    assert "greater than 0" in error.advice


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("agent: {sample_interval: 0}", "agent.sample_interval: 0 ", ">= 0.05"),
        ("agent: {sample_interval: true}", "agent.sample_interval: True ", "got true or false"),
        ("agent: {sample_interval: null}", "agent.sample_interval", "expected a number"),
        ("agent: {listen: 9394}", "agent.listen", "expected text"),
        ("agent: {families: [native, 1]}", "agent.families", "expected text"),
        ("agent: {families: []}", "agent.families", "at least one"),
        ("agent: {intervall: 1}", "agent.intervall", "unknown setting"),
        ("agnet: {listen: ':1'}", "agnet", "unknown setting"),
        ("agent: [1]", "agent", "expected keys and values"),
        ("- agent", "", "expected keys and values"),
        ("agent: {listen: ':1', listen: ':2'}", ":1", "is given twice"),
        ("agent: {listen", ":2", "did not find"),
        ("agent: {1: 2}", "agent", "key 1 is not text"),
    ],
)
def test_a_bad_file_is_refused_with_path_and_reason(file, text, path, reason):
    name = file(text)
    message = str(refused(file=name))
    assert path in message
    assert reason in message
    assert name in message


def test_a_file_that_is_not_there_is_refused_by_name():
    assert str(refused(file="/nowhere/x.yaml")) == "/nowhere/x.yaml: No such file or directory"


def test_a_bad_value_is_refused_even_where_a_better_one_outweighs_it(file):
    refused(file=file("agent: {sample_interval: 0}"), flags={"agent.sample_interval": "1"})


def test_an_unknown_variable_is_refused_with_the_nearest_name():
    error = refused(environ={"VGPUSCOPE_AGENT_SAMPLE_INTERVALL": "1"})
    assert "VGPUSCOPE_AGENT_SAMPLE_INTERVALL" in str(error)
    assert error.advice == "Did you mean VGPUSCOPE_AGENT_SAMPLE_INTERVAL?"


def test_an_unknown_key_is_refused_with_the_nearest_name(file):
    assert "agent.sample_interval" in refused(file=file("agent: {sample_intervall: 1}")).advice


def test_variables_that_kubernetes_makes_for_a_service_are_no_settings():
    agent(
        environ={
            "VGPUSCOPE_AGENT_SERVICE_HOST": "10.0.0.1",
            "VGPUSCOPE_AGENT_SERVICE_PORT": "9394",
            "VGPUSCOPE_AGENT_SERVICE_PORT_METRICS": "9394",
            "VGPUSCOPE_AGENT_PORT": "tcp://10.0.0.1:9394",
            "VGPUSCOPE_AGENT_PORT_9394_TCP": "tcp://10.0.0.1:9394",
            "VGPUSCOPE_AGENT_PORT_9394_TCP_ADDR": "10.0.0.1",
        }
    )


def test_a_port_that_a_person_set_is_not_taken_for_kubernetes_own():
    refused(environ={"VGPUSCOPE_AGENT_PORT": "9394"})


def test_a_call_that_the_lease_could_not_cover_is_refused():
    assert load(flags={}, environ={"VGPUSCOPE_CONTROL_TIMEOUT": "10s"}, file=None).config.control.timeout == 10.0
    message = str(refused(environ={"VGPUSCOPE_CONTROL_TIMEOUT": "10.1"}))
    assert "VGPUSCOPE_CONTROL_TIMEOUT" in message
    assert "10" in message


def test_ratio_and_ratio_file_in_one_place_are_refused(file):
    both = "agent.ratio and agent.ratio_file"
    assert both in str(refused(flags={"agent.ratio": "2", "agent.ratio_file": "x"}))
    assert both in str(refused(file=file("agent: {ratio: 2, ratio_file: x}")))


def test_of_ratio_and_ratio_file_in_two_places_the_heavier_counts(file):
    loaded = load(flags={"agent.ratio": "2"}, environ={}, file=file("agent: {ratio_file: x}"))
    assert (loaded.config.agent.ratio, loaded.config.agent.ratio_file) == (2.0, None)
    assert loaded.origins["agent.ratio_file"] == "default"


def test_families_come_as_list_text_or_all(file):
    assert agent(file=file("agent: {families: [dcgm, native, dcgm]}")).families == ("dcgm", "native")
    assert agent(flags={"agent.families": "pod, native"}).families == ("pod", "native")
    assert agent(flags={"agent.families": "all"}).families == ALL_FAMILIES
    assert agent(flags={"agent.families": "all,dcgm-pods"}).families == FAMILIES
    assert "dcgm-pods" not in ALL_FAMILIES
    assert "dcgm" not in agent().families


def test_pods_are_asked_of_the_cluster_only_where_there_is_one():
    cluster = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert pods_source(agent(), environ={}) == "none"
    assert pods_source(agent(), environ=cluster) == "kube"
    assert pods_source(agent(flags={"agent.kubeconfig": "/k"}), environ={}) == "kube"
    assert pods_source(agent(flags={"agent.pods": "none"}), environ=cluster) == "none"


def test_every_setting_has_one_path_one_flag_one_variable_and_a_description():
    for names in (
        [s.path for s in SETTINGS],
        [s.env for s in SETTINGS],
        [(s.section, s.flag) for s in SETTINGS if s.flag],
    ):
        assert len(names) == len(set(names))
    assert all(s.description.endswith(".") for s in SETTINGS)


def test_every_default_would_be_accepted_if_it_were_written_down():
    for s in SETTINGS:
        if s.default not in (None, ""):
            value = load(flags={s.path: s.default}, environ={}, file=None).value(s.path)
            assert value == s.default


def test_a_default_that_is_a_list_is_named_and_an_empty_list_is_not_shown_as_it():
    kept = next(setting for setting in SETTINGS if setting.path == "reclaim.protected_namespaces")
    assert kept.default_text == "kube-system,kube-public,kube-node-lease"
    assert kept.shown(()) == "(none)"


def test_signs_of_use_have_names_and_expressions(file):
    load(flags={}, environ={}, file=file("reclaim: {action: scale}\ncontrol: {enabled: true}"))
    own = load(flags={}, environ={}, file=file("activity: {queries: [{name: q, query: up, by: queue}]}"))
    assert [(one.name, one.by) for one in own.config.activity.queries] == [("q", "queue")]
    assert load(flags={}, environ={}, file=file("activity: {queries: []}")).config.activity.queries == ()
    for wrong in (
        "[{name: a, query: x}, {name: a, query: y}]",
        "[{name: a}]",
        "[{name: a, query: ''}]",
        "[{name: a, query: x, by: node}]",
        "[{name: a, query: x, unit: s}]",
    ):
        with pytest.raises(ConfigInvalid, match=r"activity\.queries"):
            load(flags={}, environ={}, file=file(f"activity: {{queries: {wrong}}}"))


def test_a_kind_that_reclaim_cannot_stop_is_refused_by_name(file):
    with pytest.raises(ConfigInvalid, match=r"kube\.kinds: 'DaemonSet' cannot be stopped"):
        load(flags={}, environ={}, file=file("kube: {kinds: [Deployment, DaemonSet]}"))
    some = load(flags={}, environ={"VGPUSCOPE_KUBE_KINDS": "Job, Pod"}, file=None).config.kube.kinds
    assert some == ("Job", "Pod")


def test_a_secret_is_never_shown(monkeypatch):
    class Section(msgspec.Struct, frozen=True):
        password: Annotated[str, Meta(min_length=20, description="Secret.", extra={"secret": True})] = ""

    class Root(msgspec.Struct, frozen=True):
        agent: Section

    [setting] = settings_of(Root)
    assert setting.shown("hunter2") == "[redacted]"
    monkeypatch.setattr(loading, "_BY_PATH", {setting.path: setting})
    bad = loading._Given(path=setting.path, value="hunter2", origin="flag", said="flag", weight=3)
    with pytest.raises(ConfigInvalid) as caught:
        loading._checked(bad)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5m", 300), ("1h30m", 5400), ("300ms", 0.3), ("1.5h", 5400), ("2", 2), ("0.05", 0.05), ("1m0.5s", 60.5)],
)
def test_durations_are_gos_or_seconds(text, expected):
    assert duration.seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5 m", "m", "5d", "1h30", "five", "-", "1.2.3s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="duration such as"):
        duration.seconds(text)


@given(st.dictionaries(st.sampled_from([s.path for s in SETTINGS]), st.text(), max_size=3))
def test_any_flags_give_a_configuration_or_a_refusal(flags):
    message = said(flags=flags)
    assert message is None or any(path in message for path in flags)


@given(st.binary(max_size=200))
def test_any_file_gives_a_configuration_or_a_refusal(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    message = said(file=str(path))
    assert message is None or str(path) in message


def test_the_token_that_top_uses_is_no_unknown_setting():
    assert load(flags={}, environ={"VGPUSCOPE_TOKEN": "secret"}).config == load(flags={}, environ={}).config


# --- the analyzer's, which are gpu-oour's too ------------------------------------------------------------------------


def test_gpu_oours_file_and_variables_are_understood(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "prometheus: {url: 'http://your-prometheus:9090', time_window_min: 10, step: 30s}\n"
        "scoring: {gpu_util_weight: 0.5, mem_copy_weight: 0.2, mem_used_weight: 0.2, power_weight: 0.1}\n"
        "thresholds: {low_utilization: 20, idle: 10}\n"
        "scheduler: {interval: 300, max_workers: 8}\n"
        "ai: {enabled: false, api_url: '', api_key: '', model: gpt-4, threshold: 0.7}\n"
        "control: {enabled: false, api_url: '', timeout: 5}\n"
        "logging: {level: INFO, format: '%(message)s'}\n"
    )
    variables = {"PROM_URL": "http://p:9090", "THRESHOLD": "25", "INTERVAL": "600", "LOG_LEVEL": "debug"}
    loaded = load(flags={}, environ=variables, file=str(file)).config
    assert (loaded.prometheus.url, loaded.prometheus.step) == ("http://p:9090", 30)
    assert (loaded.thresholds.low_utilization, loaded.scheduler.interval, loaded.logging.level) == (25, 600, "DEBUG")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("scoring: {gpu_util_weight: .nan}", "gpu_util_weight: nan"),
        ("scoring: {power_weight: .inf}", "power_weight: inf"),
        ("scoring: {gpu_util_weight: 0, mem_copy_weight: 0, mem_used_weight: 0, power_weight: 0}", "weights are 0"),
        ("thresholds: {low_utilization: 5}", "not in ascending order"),
        ("thresholds: {high: 10}", "not in ascending order"),
        ("verdict: {idle_enter: 0.5}", "above idle_leave"),
        ("scheduler: {interval: 0}", "interval: 0"),
        ("control: {api_url: 'not a url'}", "control.api_url: 'not a url'"),
        ("control: {api_url: 'ftp://control.example'}", "control.api_url"),
        ("scheduler: {max_workers: 0}", "max_workers: 0"),
        ("prometheus: {query_condition: 'pod!=\"\"'}", "expected matchers in braces"),
        ("prometheus: {query_condition: '{pod!=\"\"} or vector(1)'}", "expected matchers in braces"),
        ("prometheus: {headers: ['X-Scope-OrgID']}", "expected Name: value"),
        ("analyzer: {api_token: short}", "api_token: [redacted]"),
        ("logging: {level: foo}", "expected"),
    ],
)
def test_settings_of_the_analyzer_that_make_no_sense_are_refused(tmp_path, body, reason):
    file = tmp_path / "config.yaml"
    file.write_text(body)
    assert reason in said(file=str(file))


@pytest.mark.parametrize("good", ["{}", '{pod!=""}', '{pod!="",cluster=~"a|b" , x!~\'c\\\'d\',}', '{a="\\"}"}'])
def test_any_matchers_are_a_condition(good):
    assert load(flags={}, environ={"QUERY_CONDITION": good}).config.prometheus.query_condition == good


def test_variables_of_other_programs_count_only_for_the_sections_that_run():
    wrong = {"INTERVAL": "soon"}
    assert load(flags={}, environ=wrong, sections=("agent", "log")).config.scheduler.interval == 300
    with pytest.raises(ConfigInvalid, match="INTERVAL"):
        load(flags={}, environ=wrong, sections=("scheduler",))
