"""Settings of the control service that is called, and of taking GPUs back: the policy and its brakes."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from vgpuscope.formats.hours import part
from vgpuscope.model.quantity import Ratio, Seconds
from vgpuscope.model.reclaim import Action, OpenHours

CallbackWhen: TypeAlias = Literal["low", "idle"]


class BreakerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When many workloads turn idle at once."""

    share: Annotated[Ratio, Meta(gt=0, le=1)] = 0.2
    least: Annotated[int, Meta(ge=1)] = 5
    calm: Annotated[int, Meta(ge=1)] = 6


class HoursConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `reclaim.working_hours`."""

    days: str = "mon-sun"
    begin: str = msgspec.field(name="from", default="00:00")
    end: str = msgspec.field(name="to", default="24:00")
    tz: str = "UTC"


class ControlConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls to a control service: of low GPUs (callbacks, as in gpu-oour), or to take GPUs back."""

    enabled: Annotated[
        bool,
        Meta(
            description="Call the control service at control.api_url for low GPUs, and let reclaim work: a dry run, "
            "unless control.dry_run is false.",
            extra={"aliases": ("CONTROL_API_ENABLED",)},
        ),
    ] = False
    dry_run: Annotated[
        bool | None,
        Meta(
            description="true: only record in the log, the API and the metrics what would have been done; nothing is "
            "sent. false: reclaim takes GPUs back.",
            extra={"unset": "callbacks are sent, and reclaim takes nothing"},
        ),
    ] = None
    when: Annotated[  # not `on`: YAML 1.1 reads that key as true
        CallbackWhen | None,
        Meta(
            description="Which GPUs and tenants are reported to the control service. low: those of /results/low. "
            "idle: those with the verdict idle. An unknown verdict is never reported.",
            extra={"unset": "low; none if control.dry_run is set"},
        ),
    ] = None
    repeat: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=30 * 86400,
            description="Minimum time until a GPU or tenant that stays low or idle is reported again. 0: after each "
            "analysis, as in gpu-oour.",
            extra={"form": "duration"},
        ),
    ] = 3600.0
    api_url: Annotated[
        str,
        Meta(
            description="URL of the control service.",
            extra={"form": "url_if_any", "aliases": ("CONTROL_API",), "unset": "none"},
        ),
    ] = ""
    timeout: Annotated[
        Seconds,
        Meta(
            ge=0.1,
            le=10,  # with a margin, the lease of the leader covers it: 15 s, renewed before a call if need be
            description="Timeout of a call to the control service; at most 10 s, so that the leader's lease covers it.",
            extra={"form": "duration"},
        ),
    ] = 5.0
    secret: Annotated[
        str,
        Meta(
            description="Secret of the calls' signature (Standard Webhooks), in base64, with or without whsec_.",
            extra={"form": "webhook_secret", "secret": True, "unset": "calls are not signed"},
        ),
    ] = ""


class ReclaimConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When GPUs of idle workloads are taken back, and from which workloads never."""

    action: Annotated[
        Action,
        Meta(
            description="control: call the control service for each GPU. scale: scale the owner of the pod to zero, "
            "stop its notebook, suspend its job, or evict the pod. notify: only notify the owner.",
        ),
    ] = "control"
    confirmations: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Idle analyses in a row that are needed; analyses with overlapping windows count once.",
        ),
    ] = 3
    min_coverage: Annotated[
        Ratio, Meta(ge=0.5, le=1, description="Minimum coverage of each of these analyses, 0-1.")
    ] = 0.95
    grace: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=30 * 86400,
            description="Time between the notice and the action.",
            extra={"form": "duration"},
        ),
    ] = 1800.0
    min_pod_age: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=30 * 86400,
            description="Pods younger than this are left alone.",
            extra={"form": "duration"},
        ),
    ] = 1800.0
    approval: Annotated[bool, Meta(description="An operator has to approve each action.")] = False
    notify_first: Annotated[bool, Meta(description="Notify the owner before acting.")] = True
    include_held: Annotated[
        bool,
        Meta(
            description="Include workloads of the class idle-held, whose processes hold GPU memory. If false, their "
            "cases are held back by the brake holds_memory.",
        ),
    ] = False
    include_preparing: Annotated[
        bool,
        Meta(
            description="Include workloads of the class idle-preparing, whose CPUs prepare data while GPUs are idle.",
        ),
    ] = False
    protected_namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="Namespaces whose workloads are left alone, separated by commas.",
            extra={"form": "list", "unset": "none"},
        ),
    ] = ("kube-system", "kube-public", "kube-node-lease")
    protected_priorities: Annotated[
        tuple[str, ...],
        Meta(
            description="Priority classes whose workloads are left alone, separated by commas. Needs kube.enabled.",
            extra={"form": "list", "unset": "none"},
        ),
    ] = ("system-cluster-critical", "system-node-critical")
    evidence_jobs: Annotated[
        tuple[str, ...],
        Meta(
            description="Scrape jobs of Prometheus by whose series GPUs may be taken back, as patterns (*dcgm*), "
            "separated by commas. A workload on a GPU that another job reports is left alone. GPUs that the analyzer "
            "scrapes itself need no job.",
            extra={"form": "list", "unset": "none"},
        ),
    ] = ("vgpuscope*", "hami-vgpu-monitor", "*dcgm*", "*gpu*")
    max_per_hour: Annotated[
        int, Meta(ge=0, description="Maximum number of workloads that are acted on in any hour.")
    ] = 10
    max_per_namespace: Annotated[
        int,
        Meta(
            ge=0,
            description="Maximum number of workloads of one namespace that are acted on in any hour.",
        ),
    ] = 5
    max_fleet_share: Annotated[
        Ratio,
        Meta(
            ge=0,
            le=1,
            description="Maximum share of all GPUs that are taken back in any hour, 0-1.",
        ),
    ] = 0.1
    working_hours: Annotated[
        tuple[HoursConfig, ...],
        Meta(
            description="Times at which acting is allowed: a list of days (mon-fri), from, to and tz. In a variable it "
            "is JSON.",
            extra={"form": "json", "unset": "at any time"},
        ),
    ] = ()
    breaker: Annotated[
        BreakerConfig,
        Meta(
            description="Circuit breaker: if more than `share` of all workloads, and at least `least`, turn idle from "
            "one analysis to the next, no action is taken for `calm` analyses. In an environment variable it is JSON.",
            extra={"form": "json"},
        ),
    ] = BreakerConfig()
    stop: Annotated[bool, Meta(description="Stop switch: no action is taken, and no notice is sent.")] = False
    keep_history: Annotated[
        Seconds,
        Meta(
            ge=3600,
            le=366 * 86400,
            description="Retention of what back-tests replay. All of it together is at most 512 MiB.",
            extra={"form": "duration"},
        ),
    ] = 14 * 86400.0


def callback_when(control: ControlConfig, reclaim: ReclaimConfig) -> CallbackWhen | None:
    """Which GPUs are reported to the control service; None: none.

    A service that reclaim calls takes GPUs: it gets no reports. Who has decided on the dry run of reclaim has such a
    service, or had one, and has to ask for reports.
    """
    reclaims = control.dry_run is False and reclaim.action == "control"
    if not control.enabled or not control.api_url or control.dry_run or reclaims:
        return None
    return control.when or ("low" if control.dry_run is None else None)


def open_hours(config: HoursConfig) -> OpenHours:
    """The hours as values; ValueError says which part is invalid."""
    return part(days=config.days, begin=config.begin, end=config.end, tz=config.tz)
