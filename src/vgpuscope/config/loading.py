"""The configuration: one typed value, read once. Precedence: flags, environment variables, file, defaults.

A setting is one field of a section (agent.py, cluster.py, …). Its flag, environment variable, `config print` row and
documentation follow from it. A new service adds one Struct and one field of Config.
"""

import base64
import math
import re
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from vgpuscope.catalog import deprecations
from vgpuscope.catalog.deprecations import Deprecation, deprecated_setting
from vgpuscope.catalog.metric import ALL_FAMILIES, FAMILIES
from vgpuscope.config.agent import AgentConfig
from vgpuscope.config.ai import AiConfig
from vgpuscope.config.analyzer import (
    AnalyzerConfig,
    GpuDefaultsConfig,
    LoggingConfig,
    PrometheusConfig,
    SchedulerConfig,
    ScoringConfig,
    ThresholdsConfig,
    VerdictConfig,
)
from vgpuscope.config.cluster import ClusterConfig
from vgpuscope.config.extender import ExtenderConfig
from vgpuscope.config.files import FILE_VARIABLE, DeprecatedUse, named_file
from vgpuscope.config.kube import ActivityConfig, KubeConfig
from vgpuscope.config.notify import NotifyConfig, check_notify
from vgpuscope.config.plugin import PluginConfig
from vgpuscope.config.reclaim import ControlConfig, ReclaimConfig, callback_when, open_hours
from vgpuscope.config.shared import LogConfig
from vgpuscope.formats.prom import promql
from vgpuscope.http import address
from vgpuscope.knowledge.stops import STOPPED_KINDS
from vgpuscope.model.errors import ConfigInvalid, raise_all
from vgpuscope.model.placement import GpuPolicy
from vgpuscope.model.wording import nearest
from vgpuscope.runtime import duration, log, yamlfile

PREFIX: Final = "VGPUSCOPE_"
# variables with the prefix that are not settings: secrets do not belong in a settings file, and commands that read no
# settings file trust the same authorities
OTHER_VARIABLES: Final = frozenset({FILE_VARIABLE, "VGPUSCOPE_TOKEN", "VGPUSCOPE_CA_FILE"})


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set; each field is a section of the file."""

    agent: AgentConfig = AgentConfig()
    cluster: ClusterConfig = ClusterConfig()
    extender: ExtenderConfig = ExtenderConfig()
    analyzer: AnalyzerConfig = AnalyzerConfig()
    plugin: PluginConfig = PluginConfig()
    prometheus: PrometheusConfig = PrometheusConfig()
    scoring: ScoringConfig = ScoringConfig()
    thresholds: ThresholdsConfig = ThresholdsConfig()
    verdict: VerdictConfig = VerdictConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    gpu_defaults: GpuDefaultsConfig = GpuDefaultsConfig()
    ai: AiConfig = AiConfig()
    control: ControlConfig = ControlConfig()
    reclaim: ReclaimConfig = ReclaimConfig()
    notify: NotifyConfig = NotifyConfig()
    kube: KubeConfig = KubeConfig()
    activity: ActivityConfig = ActivityConfig()
    logging: LoggingConfig = LoggingConfig()
    log: LogConfig = LogConfig()


GPU_POLICIES: Final[tuple[str, ...]] = get_args(GpuPolicy)
_EXCLUSIVE = (("agent.ratio", "agent.ratio_file"), ("agent.kubelet_ca", "agent.kubelet_insecure"))


class Setting(Struct, frozen=True, kw_only=True):
    """One row of the table of settings."""

    path: str  # agent.sample_interval
    flag: str | None  # --sample-interval, as the field names it; None: only by file and environment
    short: str | None  # -v
    env: str  # VGPUSCOPE_AGENT_SAMPLE_INTERVAL
    aliases: tuple[str, ...]  # names that HAMi and others use for the same setting
    kind: str  # the format of a value, for the documentation
    placeholder: str | None
    choices: tuple[str, ...]
    default: Any
    default_text: str
    unset: str  # what no value means
    description: str
    secret: bool
    type: Any
    form: str | None
    error: Any  # the ConfigInvalid that a bad value raises

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    def shown(self, value: object) -> str:
        """The value as text: secrets hidden, in parentheses what it means that there is no value."""
        if value is None or value in ("", ()):
            return f"({self.unset})"
        if self.secret:
            return "[redacted]"
        return log.clean(_text(value))


class Loaded(Struct, frozen=True, kw_only=True):
    """The configuration in effect, and where each value came from."""

    config: Config
    origins: dict[str, str]  # path → "API", "flag", "env NAME", "file PATH" or "default"
    deprecated: tuple[DeprecatedUse, ...] = ()  # what was given under a deprecated name

    def value(self, path: str) -> Any:
        """The value in effect for one setting."""
        section, _, name = path.partition(".")
        return getattr(getattr(self.config, section), name)


def load(
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: str | None = None,
    sections: Collection[str] = (),
    changes: Mapping[str, object] | None = None,
) -> Loaded:
    """The configuration in effect; ConfigInvalid names path, value and reason of every key that is wrong.

    `file` "none" reads no file, even if the environment names one. If sections are named, variables shared with other
    programs (INTERVAL, NODE_NAME) are read for these sections only. `changes` were requested through the API, and take
    precedence over everything else.
    """
    chosen: dict[str, _Given] = {}
    deprecated: list[DeprecatedUse] = []
    faults: list[ConfigInvalid] = []  # all are reported at once
    file = named_file(file, environ)
    asked = (_Given(path=p, value=v, origin="API", said="the request", weight=4) for p, v in (changes or {}).items())
    for given in (*_all_given(faults, flags=flags, environ=environ, file=file, sections=sections), *asked):
        if given.deprecated is not None:
            deprecated.append(DeprecatedUse(given.deprecated, given.said))
        try:
            value = _checked(given)
        except ConfigInvalid as e:
            faults.append(e)
            continue
        before = chosen.get(given.path)
        if before is None or given.deprecated is None or before.weight < given.weight:  # the new name takes precedence
            chosen[given.path] = msgspec.structs.replace(given, value=value)
    raise_all(faults)
    _settle_exclusive(chosen)
    values = {path: given.value for path, given in chosen.items()}
    for section in ("agent", "plugin"):
        values[f"{section}.node_name"] = (
            values.get(f"{section}.node_name") or socket.gethostname().lower()
        )  # as kubelets
    origins = {s.path: chosen[s.path].origin if s.path in chosen else "default" for s in SETTINGS}
    config = _built(values)
    check(config)
    return Loaded(config=config, origins=origins, deprecated=tuple(deprecated))


def check(config: Config) -> None:
    """ConfigInvalid for values that are valid one by one, but not together: all of them."""
    raise_all([*_conflicts(config)])


def _conflicts(config: Config) -> Iterator[ConfigInvalid]:
    scoring, thresholds, verdict = config.scoring, config.thresholds, config.verdict
    if not any(getattr(scoring, name) for name in scoring.__struct_fields__):
        yield ConfigInvalid("scoring: all weights are 0", hint="At least one weight must be greater than 0.")
    if not thresholds.idle <= thresholds.low_utilization <= thresholds.high:
        yield ConfigInvalid(
            f"thresholds: idle {thresholds.idle:g}, low_utilization {thresholds.low_utilization:g}, high "
            f"{thresholds.high:g}: not in ascending order",
            hint="Required: idle ≤ low_utilization ≤ high.",
        )
    if verdict.idle_enter > verdict.idle_leave:
        yield ConfigInvalid(
            f"verdict: idle_enter {verdict.idle_enter:g} is above idle_leave {verdict.idle_leave:g}",
            hint="idle_enter ≤ idle_leave. A GPU becomes idle below idle_enter, and stops being idle at idle_leave.",
        )
    yield from _reclaim_conflicts(config)
    ai = config.ai  # without a URL the model's maker is asked, and only if there is a key: names of pods would go there
    by_model = ai.provider is None and (ai.api_key or ai.api_key_file)
    if ai.enabled and not (ai.api_url or by_model or ai.provider in {"openai", "anthropic"}):
        yield ConfigInvalid(
            "ai.api_url: missing, but ai.enabled is true",
            hint="Set the URL of the language model, or the API key of the maker of ai.model (AI_API_KEY).",
        )
    try:
        check_notify(config.notify)
    except ValueError as e:
        yield ConfigInvalid(f"notify.{e}", hint="docs/notices.md has an example of each channel.")


def _reclaim_conflicts(config: Config) -> Iterator[ConfigInvalid]:
    for number, hours in enumerate(config.reclaim.working_hours):
        try:
            open_hours(hours)
        except ValueError as e:
            hint = "An entry has days, from, to and tz, such as {days: mon-fri, from: '08:00', to: '18:00'}."
            yield ConfigInvalid(f"reclaim.working_hours[{number}].{e}", hint=hint)
    for kind in config.kube.kinds:
        if kind not in STOPPED_KINDS:
            yield ConfigInvalid(
                f"kube.kinds: {kind!r} cannot be stopped", hint=f"Choose from {', '.join(STOPPED_KINDS)}."
            )
    names = [one.name for one in config.activity.queries]
    if len(names) != len(set(names)):
        yield ConfigInvalid("activity.queries: two expressions have the same name", hint="The evidence names them.")
    if config.control.enabled and config.reclaim.action == "control" and not config.control.api_url:
        yield ConfigInvalid(
            "control.api_url: missing, but control.enabled is true",
            hint="Set the URL of the control service, or reclaim.action to scale or notify.",
        )
    yield from _callback_conflicts(config)


def _callback_conflicts(config: Config) -> Iterator[ConfigInvalid]:
    """GPUs are to be reported to the control service, and another setting rules that out."""
    control = config.control
    if not control.enabled or control.when is None or callback_when(control, config.reclaim) is not None:
        return
    at = f"control.when: {control.when}, but "
    if control.dry_run:
        yield ConfigInvalid(f"{at}control.dry_run is true, so nothing is sent", hint="Remove one of the two.")
    elif not control.api_url:
        yield ConfigInvalid(f"{at}control.api_url is missing", hint="Set the URL of the control service.")
    else:
        yield ConfigInvalid(
            f"{at}reclaim.action control calls the same service to take GPUs, which would take each low GPU at once",
            hint="Remove control.when, remove control.dry_run, or set reclaim.action to scale or notify.",
        )


def pods_source(agent: AgentConfig, *, environ: Mapping[str, str]) -> str:
    """agent.pods with "auto" decided: kube in a cluster or with a kubeconfig, else none."""
    if agent.pods != "auto":
        return agent.pods
    return "kube" if agent.kubeconfig or environ.get("KUBERNETES_SERVICE_HOST") else "none"


# --- the table -------------------------------------------------------------------------------------------------------


def settings_of(root: type[Struct]) -> tuple[Setting, ...]:
    """The table of settings of a configuration type: one row for each field of each section."""
    return tuple(
        _setting(section.name, field)
        for section in msgspec.structs.fields(root)
        for field in msgspec.structs.fields(section.type)
    )


def _setting(section: str, field: msgspec.structs.FieldInfo) -> Setting:
    meta = next(m for m in get_args(field.type) if isinstance(m, Meta))
    inner, extra = get_args(field.type)[0], meta.extra or {}
    one_of = next((part for part in (inner, *get_args(inner)) if get_origin(part) is Literal), None)
    choices = tuple(map(str, get_args(one_of))) if one_of else ()
    default = field.default
    unset = extra.get("unset") or _text(default)
    path = f"{section}.{field.name}"
    row = deprecated_setting(path)
    return Setting(
        path=path,
        flag=extra.get("flag"),
        short=extra.get("short"),
        env=variable(path),
        aliases=extra.get("aliases", ()),
        kind=_kind(inner, extra.get("form"), choices),
        placeholder=extra.get("placeholder"),
        choices=choices,
        default=default,
        default_text=unset if default is None or default in ("", ()) else _text(default),
        unset=unset,
        description=" ".join(filter(None, (meta.description, row.note if row else ""))),
        secret=extra.get("secret", False),
        type=field.type,
        form=extra.get("form"),
        error=extra.get("error", ConfigInvalid),
    )


def flag(path: str) -> str:
    """The flag of a setting, if it has none of its own."""
    return f"--{path.partition('.')[2].replace('_', '-')}"


def variable(path: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{path.replace('.', '_')}".upper()


def renamed_settings() -> tuple[Deprecation, ...]:
    """Deprecated names of settings that have another name now."""
    rows = deprecations.DEPRECATIONS
    return tuple(row for row in rows if row.kind == "setting" and row.name not in _BY_PATH)


def _kind(inner: Any, form: str | None, choices: tuple[str, ...]) -> str:
    if choices:
        return " or ".join(choices)
    if form in {"duration", "url", "url_if_any", "address", "json"}:
        return str(form).removesuffix("_if_any")
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    for part in (inner, *get_args(inner)):
        if part in names and get_origin(inner) is not tuple:
            return names[part]
    return "list"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Struct) or (isinstance(value, tuple) and any(isinstance(one, Struct) for one in value)):
        return msgspec.json.encode(value).decode()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)


# --- where values come from ------------------------------------------------------------------------------------------


class _Given(Struct, frozen=True, kw_only=True):
    """One value that was given; of two for one path, the one with the higher weight takes precedence."""

    path: str
    value: Any
    origin: str
    said: str  # for messages: "flag --listen", "env NODE_NAME", "file /etc/x.yaml"
    weight: int
    deprecated: Deprecation | None = None  # the row of its name


def _all_given(
    faults: list[ConfigInvalid],
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: str | None,
    sections: Collection[str],
) -> Iterator[_Given]:
    """Every given value, lowest precedence first; what is given under an unknown name is added to the faults."""
    if file is not None:
        yield from _from_file(file, faults)
    for setting in SETTINGS:
        if sections and setting.section not in sections:
            continue
        for name in reversed(setting.aliases):
            yield from _from_variable(setting.path, name, environ, weight=1)
    faults += _unknown_variables(environ)
    for setting in SETTINGS:
        yield from _from_variable(setting.path, setting.env, environ, weight=2)
    for old in renamed_settings():
        yield from _from_variable(old.name, variable(old.name), environ, weight=2)
    for path, value in flags.items():
        if value is not None:
            said = f"flag {_BY_PATH[path].flag if path in _BY_PATH else flag(path)}"
            yield _given(path, value, origin="flag", said=said, weight=3)


def _from_variable(path: str, name: str, environ: Mapping[str, str], *, weight: int) -> Iterator[_Given]:
    if text := environ.get(name, "").strip():  # charts set variables to an empty string to mean "not set"
        yield _given(path, text, origin=f"env {name}", said=f"env {name}", weight=weight)


def _given(path: str, value: Any, *, origin: str, said: str, weight: int) -> _Given:
    """A value that was given under this path, which may be the deprecated name of another."""
    row = deprecated_setting(path)
    now = row.instead if row and path not in _BY_PATH else path
    return _Given(path=now, value=value, origin=origin, said=said, weight=weight, deprecated=row)


def _from_file(file: str, faults: list[ConfigInvalid]) -> Iterator[_Given]:
    content = yamlfile.mapping(yamlfile.read(file, hint="Check the path; --config none reads no file."), path=file)
    for section, body in content.items():
        if section not in Config.__struct_fields__:
            faults.append(_unknown(f"{section} in {file}", section, Config.__struct_fields__))
            continue
        try:
            values = yamlfile.section(body, at=f"{section} in {file}")
        except ConfigInvalid as e:
            faults.append(e)
            continue
        for name, value in values.items():
            path = f"{section}.{name}"
            given = _given(path, value, origin=f"file {file}", said=f"file {file}", weight=0)
            if given.path not in _BY_PATH:
                faults.append(_unknown(f"{path} in {file}", path, _BY_PATH))
                continue
            yield given


# In a pod of a namespace with a Service "vgpuscope-agent", Kubernetes sets VGPUSCOPE_AGENT_SERVICE_HOST and the like.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[ConfigInvalid]:
    known = {s.env for s in SETTINGS} | OTHER_VARIABLES | {name for s in SETTINGS for name in s.aliases}
    known |= {variable(old.name) for old in renamed_settings()}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or _SERVICE_LINK.search(name):
            continue
        if name.endswith("_PORT") and "://" in environ[name]:
            continue
        yield _unknown(f"env {name}", name, known)


def _unknown(said: str, key: str, known: Any) -> ConfigInvalid:
    return ConfigInvalid(f"{said}: unknown setting", hint=nearest(key, known) or None)


# --- what a value must be --------------------------------------------------------------------------------------------


def _checked(given: _Given) -> Any:
    setting = _BY_PATH[given.path]
    try:
        value = _FORMS[setting.form](given.value) if setting.form else given.value
        return msgspec.convert(value, setting.type, strict=not isinstance(given.value, str))
    except ValueError as e:  # includes msgspec's errors
        shown = "[redacted]" if setting.secret else log.clean(repr(given.value))
        text = f"{setting.path}: {shown} from {given.said}: {_reason(e, setting)}"
        raise setting.error(text, hint=_nearest_value(setting, given.value)) from e


_PODS = ("auto", "kube", "kubelet", "none", "file:PATH")
_DCGM = ("auto", "none")


def _nearest_value(setting: Setting, value: object) -> str | None:
    """A hint if only some words are allowed and one of them is similar."""
    known = setting.choices or {"families": (*FAMILIES, "all"), "pods": _PODS, "dcgm": _DCGM}.get(
        setting.form or "", ()
    )
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else []
    return next((near for word in words if word not in known and (near := nearest(word, known))), None)


_WORDS = {"`float | null`": "a number", "`float`": "a number", "`int`": "a whole number", "`bool`": "true or false"}
_MORE_WORDS = {"`str | null`": "text", "`str`": "text", "`array`": "a list", "`object`": "keys", "`null`": "nothing"}


def _reason(e: ValueError, setting: Setting) -> str:
    """Why a value was rejected, in the terms of a YAML file."""
    if setting.choices:
        return f"expected {' or '.join(setting.choices)}"
    text = str(e)
    for theirs, ours in (_WORDS | _MORE_WORDS).items():
        text = text.replace(theirs, ours)
    return text[:1].lower() + text[1:]


def _duration(value: Any) -> Any:
    return duration.seconds(value) if isinstance(value, str) else value


def _address(value: Any) -> Any:
    if isinstance(value, str):
        address.split(value)
    return value


def _pods(value: Any) -> Any:
    if isinstance(value, str) and value not in _PODS[:-1]:
        kind, _, path = value.partition(":")
        if kind != "file" or not path:
            raise ValueError("expected kube, kubelet, file:PATH, none or auto")
    return value


def _url(value: Any) -> Any:
    if isinstance(value, str) and not re.match(r"https?://[^/@\s]+(/\S*)?$", value):
        raise ValueError("expected https://HOST:PORT, without a user in it")
    return value


def _dcgm(value: Any) -> Any:
    return value if value in _DCGM or str(value).startswith("auto:") else _url(value)


def _url_if_any(value: Any) -> Any:
    return _url(value) if value else value


def _ratio(value: Any) -> Any:
    number = msgspec.convert(value, float | None, strict=not isinstance(value, str))
    if number is not None and not 0 < number < math.inf:
        raise ValueError("expected a number greater than 0")
    return number


def _families(value: Any) -> Any:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    names = msgspec.convert(names, list[str])
    names = [family for name in names for family in (ALL_FAMILIES if name == "all" else (name,))]
    if not names or names == [""]:
        raise ValueError(f"expected at least one of {', '.join(FAMILIES)}")
    for name in names:
        if name not in FAMILIES:
            raise ValueError(f"{name!r} is not a metric family; allowed: {', '.join(FAMILIES)}, all")
    return list(dict.fromkeys(names))


def _list(value: Any) -> Any:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    return [name for name in dict.fromkeys(msgspec.convert(names, list[str])) if name]


def _networks(value: Any) -> Any:
    listed = _list(value)
    address.networks(listed)
    return listed


def _gpu_policy(value: Any) -> Any:
    if isinstance(value, str):
        words = [word.strip() for word in value.split(",")]
        wrong = next((word for word in words if word not in GPU_POLICIES), None)
        if wrong is not None:
            raise ValueError(f"{wrong[:40]!r} is not one of {', '.join(GPU_POLICIES)}")
        return ",".join(words)
    return value


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


def _headers(value: Any) -> Any:
    lines = msgspec.convert([value] if isinstance(value, str) else value, list[str])
    for line in lines:
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+:[^\r\n]*", line):
            raise ValueError("expected Name: value")
    return lines


def _condition(value: Any) -> Any:
    if isinstance(value, str):
        promql.read_condition(value)
    return value


def _json(value: Any) -> Any:
    """A list or keys; in an environment variable it is JSON text."""
    return msgspec.json.decode(value) if isinstance(value, str) else value


def _webhook_secret(value: Any) -> Any:
    if isinstance(value, str):
        try:
            key = base64.b64decode(value.removeprefix("whsec_"), validate=True)
        except ValueError as e:
            raise ValueError("expected base64") from e
        if not 24 <= len(key) <= 64:
            raise ValueError(f"expected 24 to 64 bytes in base64 (got {len(key)})")
    return value


_FORMS: dict[str | None, Callable[[Any], Any]] = {
    "duration": _duration,
    "address": _address,
    "pods": _pods,
    "dcgm": _dcgm,
    "url": _url,
    "url_if_any": _url_if_any,
    "ratio": _ratio,
    "families": _families,
    "list": _list,
    "networks": _networks,
    "gpu_policy": _gpu_policy,
    "upper": _upper,
    "headers": _headers,
    "condition": _condition,
    "json": _json,
    "webhook_secret": _webhook_secret,
}


def _settle_exclusive(chosen: dict[str, _Given]) -> None:
    """Of two settings that exclude each other, the one of higher precedence is used; equal precedence is an error."""
    for pair in _EXCLUSIVE:
        both = [chosen[path] for path in pair if path in chosen and chosen[path].value not in (None, False)]
        if len(both) < 2:
            continue
        light, heavy = sorted(both, key=lambda given: given.weight)
        if light.weight == heavy.weight:
            raise ConfigInvalid(
                f"{pair[0]} and {pair[1]} exclude each other: both are given ({light.said}, {heavy.said})",
                hint="Give one of them.",
            )
        del chosen[light.path]


def _built(values: Mapping[str, Any]) -> Config:
    sections = {}
    for section in msgspec.structs.fields(Config):
        own = {p.partition(".")[2]: v for p, v in values.items() if p.startswith(f"{section.name}.")}
        sections[section.name] = section.type(**own)
    return Config(**sections)


SETTINGS: Final[tuple[Setting, ...]] = settings_of(Config)
_BY_PATH: Final = {setting.path: setting for setting in SETTINGS}
