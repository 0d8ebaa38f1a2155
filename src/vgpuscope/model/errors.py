"""Every error a user can meet. The code is the contract: log line, metric label, API body and docs say one word.

ScopeError
├── ConfigInvalid ─── WebConfigInvalid, RatioInvalid     exit code 2
├── PortBusy, PodUnknown                                 exit code 1
├── AnnotationMalformed
├── QueryInvalid, BodyInvalid                            status 422
├── ReadOnly, Unknown, NotLeader                         status 403, 404, 409
├── HistoryDown                                          status 503
└── SourceDown ─┬─ DriverAbsent, DriverFailed, DriverHung
                ├─ RegionRefused, RegionsUnreadable
                ├─ KubeUnreadable, KubeForbidden
                ├─ PodResourcesDown
                └─ QueryFailed, QueryTimeout, QueryForbidden, AnswerUnreadable, AnswerPartial, SamplesRefused,
                   NoKnownMetrics, WindowTooShort
"""

from typing import ClassVar


class ScopeError(Exception):
    """Something a user can act on; str() says what happened, hint says what to do."""

    code: ClassVar[str] = "INTERNAL"
    meaning: ClassVar[str] = "A promise of our own code was broken."
    hint: ClassVar[str] = "Please report it with the log."
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.advice = hint or self.hint

    @property
    def lines(self) -> str:
        """The error as every command prints it."""
        return f"vgpuscope: {self.code}: {self}\nhint: {self.advice}"


class ConfigInvalid(ScopeError):
    code = "CONFIG_INVALID"
    meaning = "A flag, an environment variable or a key of the configuration file is unknown or has a bad value."
    hint = "`vgpuscope config print` shows every key with its value and where it came from."
    status = 422
    exit_code = 2


class WebConfigInvalid(ConfigInvalid):
    code = "WEB_CONFIG_INVALID"
    meaning = "The web configuration file (TLS, basic auth, bearer tokens) cannot be used."
    hint = "The file has the shape of Prometheus' exporter-toolkit; see docs/security.md."


class RatioInvalid(ConfigInvalid):
    code = "RATIO_INVALID"
    meaning = "The virtualisation ratio is not a number above 0."
    hint = "gpu_allocation.txt holds one number, integer or decimal, above 0: for example 2 when a card is cut in two."


class PortBusy(ScopeError):
    code = "PORT_BUSY"
    meaning = "The address to listen on is taken, or may not be used by this user."
    hint = "Say --listen HOST:PORT with a free port; `ss -ltnp` shows who holds this one."


class PodUnknown(ScopeError):
    code = "POD_UNKNOWN"
    meaning = "The pod that was asked for neither waits for devices nor did so within what is remembered."
    hint = "`vgpuscope pending --all` lists the pods that are known; a pod that was scheduled at once is not listed."
    status = 404


class AnnotationMalformed(ScopeError):
    code = "ANNOTATION_MALFORMED"
    meaning = "An annotation that HAMi writes on a pod is not in any form that a known HAMi release writes."
    hint = "`kubectl get pod -o yaml` shows it; the pod is reported by what the driver and its region say instead."


class QueryInvalid(ScopeError):
    code = "QUERY_INVALID"
    meaning = "A query parameter is unknown, has the wrong type or is out of range; nothing was done."
    hint = "/docs lists every parameter with its type."
    status = 422


class BodyInvalid(ScopeError):
    code = "BODY_INVALID"
    meaning = "The body of a request is not the JSON that is expected; nothing was done."
    hint = "/docs shows the shape of every body."
    status = 422


class ReadOnly(ScopeError):
    code = "READ_ONLY"
    meaning = "The request would change something, and this listener takes no changes."
    hint = "Set VGPUSCOPE_API_TOKEN and send it as a bearer token, or listen on a loopback address."
    status = 403


class NotLeader(ScopeError):
    code = "NOT_LEADER"
    meaning = "Of several replicas only the leader analyses and takes changes, and this is not the one."
    hint = "Ask again through the Service, or the replica whose /health says leader: true."
    status = 409
    retryable = True


class Unknown(ScopeError):
    code = "OBJECT_UNKNOWN"
    meaning = "There is no such GPU, node, pod or namespace among the results."
    hint = "/results lists all of them; names are case-sensitive, and UUIDs must be complete."
    status = 404


class HistoryDown(ScopeError):
    code = "HISTORY_DOWN"
    meaning = "The store of past results cannot be read or written; analyses go on without it."
    hint = "Check analyzer.history, the disk or the database; what could not be written is written when it is back."
    status = 503
    retryable = True


class SourceDown(ScopeError):
    code = "SOURCE_DOWN"
    meaning = "A source of data could not be read; what it would have given is absent, the rest is served."
    hint = "The log says which source and why; `vgpuscope top` shows it too."
    status = 503
    retryable = True
    absent: ClassVar[bool] = False  # True: known not to be on this node, which is not a fault


class DriverAbsent(SourceDown):
    code = "DRIVER_ABSENT"
    meaning = "libnvidia-ml.so.1 cannot be loaded: no driver on this node, or the container was not given it."
    hint = "In a container use the nvidia runtime class or NVIDIA_DRIVER_CAPABILITIES=utility. The agent keeps trying."
    absent = True


class DriverFailed(SourceDown):
    code = "DRIVER_FAILED"
    meaning = "NVML answers with an error for every card (driver unloaded, version mismatch, rights lost)."
    hint = (
        "`nvidia-smi` on the node says the same; the agent initialises anew by itself when the driver is back. "
        "After an upgrade of the driver's library only a restart of the agent loads the new one."
    )


class DriverHung(SourceDown):
    code = "DRIVER_HUNG"
    meaning = "A call into the driver has not come back in time."
    hint = "Look for XIDs in the kernel log; the agent goes on as soon as the call returns."


class RegionsUnreadable(SourceDown):
    code = "REGIONS_UNREADABLE"
    meaning = "HAMi's directory of container regions is there but cannot be listed."
    hint = "Mount <hook path>/containers into the agent and let it run as a user who may read it."


class RegionsAbsent(SourceDown):
    code = "REGIONS_ABSENT"
    meaning = "There is no directory of container regions: HAMi does not run on this node, or it is not mounted."
    hint = "Say --hook-path (HAMi's default is /usr/local/vgpu) and mount it read-only; without HAMi all is well."
    absent = True


class RegionRefused(SourceDown):
    code = "REGION_REFUSED"
    meaning = "A region file has a size, magic or version that no known HAMi release writes."
    hint = "The log names file and reason; a file that was only just created is taken at the next sample."

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message or reason)
        self.reason = reason


class KubeUnreadable(SourceDown):
    code = "KUBE_UNREADABLE"
    meaning = "Pods, or objects of another kind, could not be read from the API server, the kubelet or the file."
    hint = "Check --kubeconfig, --pods and the network; what is known stays, and the agent goes on with pod UIDs."


class KubeForbidden(KubeUnreadable):
    code = "KUBE_FORBIDDEN"
    meaning = "The API server or kubelet refused our credentials."
    hint = "The service account needs get, list and watch on that kind (or nodes/proxy for the kubelet's pods)."


class PodResourcesAbsent(SourceDown):
    code = "PODRESOURCES_ABSENT"
    meaning = "There is no PodResources socket: no kubelet on this node, or its directory is not mounted."
    hint = "Mount the directory /var/lib/kubelet/pod-resources; on a plain GPU server say --podresources-socket none."
    absent = True


class PodResourcesDown(SourceDown):
    code = "PODRESOURCES_DOWN"
    meaning = "The kubelet's PodResources socket does not answer."
    hint = "Mount the directory /var/lib/kubelet/pod-resources (not the socket) into the agent."


class QueryFailed(SourceDown):
    code = "QUERY_FAILED"
    meaning = "Prometheus could not be reached, or answered a query with an error; what was asked for is unknown."
    hint = "The message names the query's part and what the server said; the next analysis asks again."
    answered = False  # whether it was the server that said no


class QueryTimeout(QueryFailed):
    code = "QUERY_TIMEOUT"
    meaning = "Prometheus has not answered a query within the analysis' deadline; what was asked for is unknown."
    hint = "Raise prometheus.deadline, shorten the window, or let recording rules do the work."


class QueryForbidden(QueryFailed):
    code = "QUERY_FORBIDDEN"
    meaning = "Prometheus, or a proxy before it, refused our credentials."
    hint = "Check user, password or token, and the tenant header (X-Scope-OrgID for Mimir)."


class AnswerUnreadable(QueryFailed):
    code = "ANSWER_UNREADABLE"
    meaning = "The answer is not one of Prometheus' HTTP API: HTML, cut off, too large or of another shape."
    hint = "The URL must be the one before /api/v1; a login page in between answers with HTML."


class AnswerPartial(SourceDown):
    code = "ANSWER_PARTIAL"
    meaning = "Thanos, Mimir or VictoriaMetrics answered, but said that some of its stores did not take part."
    hint = "See which store is down; cards whose samples are missing are unknown, the others are judged."


class SamplesRefused(SourceDown):
    code = "SAMPLES_REFUSED"
    meaning = "More series than can be looked at one by one hold values that cannot be true; these terms are left out."
    hint = "Sentinels, NaN or values out of range come from the exporter: compare its page with nvidia-smi."


class WindowTooShort(SourceDown):
    code = "WINDOW_TOO_SHORT"
    meaning = "GPUs are scraped so rarely that the window holds fewer than five samples: they cannot be judged."
    hint = "Raise prometheus.time_window_min to at least five scrape intervals, or scrape more often."


class NoKnownMetrics(SourceDown):
    code = "METRICS_ABSENT"
    meaning = "The PromQL engine answers, but it has none of the GPU metrics that the analyzer reads."
    hint = "Scrape dcgm-exporter or vgpuscope agent with it, and check prometheus.url and prometheus.query_condition."


def error_types() -> tuple[type[ScopeError], ...]:
    """All error types, parents first."""
    found: list[type[ScopeError]] = []
    queue: list[type[ScopeError]] = [ScopeError]
    while queue:
        kind = queue.pop(0)
        found.append(kind)
        queue.extend(kind.__subclasses__())
    return tuple(found)
