"""Every error that a user can see. The code is a contract: log, metric label, API body and docs use the same word.

ScopeError
├── ConfigInvalid ─── WebConfigInvalid, RatioInvalid, AiSdkAbsent   status 422, exit code 2
├── PortBusy, PodUnknown                                 status 500, 404
├── AnnotationMalformed                                  status 500
├── QueryInvalid, BodyInvalid, RequestInvalid            status 422
├── BodyTooLarge, MediaUnsupported                       status 413, 415
├── LoginFailed                                          status 401
├── ReadOnly, Forbidden ─── PeerForbidden                status 403
├── ExtenderStandby, ExtenderNotSynced                   status 503
├── Unknown, NotLeader                                   status 404, 409
├── HistoryDown, FollowerLate                            status 503
├── CallFailed ─── CallRefused                           status 502, 409
├── CaseUnfit                                            status 409
├── AiFailed ─┬─ AiUnreachable, AiTimeout, AiRateLimited, AiBudgetSpent
│             └─ AiRejected, AiRedirected, AiAnswerInvalid, AiAnswerTooLarge   status 502
├── LinkInvalid, LinkExpired, LinkUsed                   status 404, 410, 410
├── BacktestBusy, HistoryAbsent                          status 409
├── RowRefused                                           status 500
├── KubeUnwritten ─── KubeConflict, KubeAbsent           status 502, 409, 404
├── AllocateFailed ─── AllocatePodUnknown, AllocateAmbiguous, AllocateForged, AllocateCountMismatch,
│                      AllocateDeviceUnknown, AllocateDeviceUnhealthy, AllocateDirectory   the plugin's, to the kubelet
└── SourceDown ─┬─ DriverAbsent, DriverFailed, DriverHung     status 503, as all below
                ├─ ProfilingAbsent, ProfilingOff
                ├─ DcgmUnreadable, DcgmWithoutFields, DcgmUnusable, DcgmNotFound
                ├─ RegionsAbsent, RegionsUnreadable, RegionRefused
                ├─ CgroupsAbsent, CgroupsUnreadable, CgroupsUnknown, CgroupsHung
                ├─ KubeUnreadable ─── KubeObjectUnreadable, KubeForbidden
                ├─ KubeletAbsent, KubeletDown
                ├─ PodResourcesAbsent, PodResourcesDown, PageMalformed
                ├─ QueryFailed ─── QueryTimeout, QueryForbidden, AnswerUnreadable
                └─ AnswerPartial, SamplesRefused, NoKnownMetrics, WindowTooShort, LimitReached
"""

from collections.abc import Sequence
from typing import ClassVar


class ScopeError(Exception):
    """An error that a user can act on: str() is what happened, hint is what to do."""

    code: ClassVar[str] = "INTERNAL"
    meaning: ClassVar[str] = "An internal error: vgpuscope broke one of its own assumptions."
    hint: ClassVar[str] = "Please report it, with the log."
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.advice = hint or self.hint

    @property
    def lines(self) -> str:
        """The error as every command prints it: what happened, then what to do. A server's words may be in it, and must
        not control the terminal."""
        text = f"vgpuscope: {self.code}: {self}\nhint: {self.advice}"
        return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


class ConfigInvalid(ScopeError):
    code = "CONFIG_INVALID"
    meaning = "A flag, an environment variable or a key of the settings file is unknown or has an invalid value."
    hint = "`vgpuscope config print` shows every setting, its value and where the value came from."
    status = 422
    exit_code = 2
    others: "tuple[ConfigInvalid, ...]" = ()  # what else is wrong; the first is this one

    def __str__(self) -> str:
        return "; ".join((super().__str__(), *map(str, self.others)))

    @property
    def lines(self) -> str:
        own = f"vgpuscope: {self.code}: {super().__str__()}\nhint: {self.advice}"
        return "\n".join((own, *(one.lines for one in self.others)))


def raise_all(faults: Sequence[ConfigInvalid]) -> None:
    """Raise the first, with all others behind it; nothing without any."""
    if faults:
        first, *others = faults
        first.others = tuple(others)
        raise first


class WebConfigInvalid(ConfigInvalid):
    code = "WEB_CONFIG_INVALID"
    meaning = "The web configuration file (TLS, basic auth, bearer tokens) is invalid."
    hint = "The file uses the format of Prometheus' exporter-toolkit; see docs/security.md."


class RatioInvalid(ConfigInvalid):
    code = "RATIO_INVALID"
    meaning = "The virtualisation ratio is not a number greater than 0."
    hint = "gpu_allocation.txt holds one integer or decimal number greater than 0: 2 if each GPU is split in two."


class PortBusy(ScopeError):
    code = "PORT_BUSY"
    meaning = "The address to listen on is in use, or this user has no permission for it."
    hint = "Choose a free port with --listen HOST:PORT; `ss -ltnp` shows which process uses this one."


class PodUnknown(ScopeError):
    code = "POD_UNKNOWN"
    meaning = "The pod does not wait for GPUs, and did not in the last day."
    hint = "`vgpuscope pending --all` lists all known pods; a pod that was scheduled immediately is not listed."
    status = 404


class AnnotationMalformed(ScopeError):
    code = "ANNOTATION_MALFORMED"
    meaning = "A HAMi annotation of a pod does not have the format of any known HAMi release."
    hint = "`kubectl get pod -o yaml` shows it; for this pod, only data from the driver and its region are reported."


class QueryInvalid(ScopeError):
    code = "QUERY_INVALID"
    meaning = "A query parameter is unknown, has the wrong type or is out of range. Nothing was changed."
    hint = "/docs lists every parameter with its type."
    status = 422


class BodyInvalid(ScopeError):
    code = "BODY_INVALID"
    meaning = "The body of the request is not the expected JSON. Nothing was changed."
    hint = "/docs shows the format of every body."
    status = 422


class BodyTooLarge(ScopeError):
    code = "BODY_TOO_LARGE"
    meaning = "The body of the request is larger than this path accepts. Nothing was changed."
    hint = "The message has the limit. Only for the extender: kube-scheduler sends less with nodeCacheCapable: true."
    status = 413


class MediaUnsupported(ScopeError):
    code = "MEDIA_UNSUPPORTED"
    meaning = "The body of the request is not called JSON in UTF-8, or is compressed. Nothing was changed."
    hint = "Send JSON as UTF-8, uncompressed: `Content-Type: application/json`, no Content-Encoding."
    status = 415


class RequestInvalid(ScopeError):
    """`chinese` is the message in Chinese; "": there is only English."""

    code = "SCHED_REQUEST_INVALID"
    meaning = "The pod's device request can never be satisfied by any node: an amount is negative, broken or too large."
    hint = "Correct the pod's resources or annotations: whole numbers, at most 100 % of memory and cores of each GPU."
    status = 422

    def __init__(self, message: str, *, chinese: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.chinese = chinese


class ReadOnly(ScopeError):
    code = "READ_ONLY"
    meaning = "The request changes something, and this listener is read-only."
    hint = "Send VGPUSCOPE_API_TOKEN as a bearer token, or use a web configuration with a role; see docs/security.md."
    status = 403


class Forbidden(ScopeError):
    code = "FORBIDDEN"
    meaning = "The caller is known, but its role or its namespaces do not allow this."
    hint = "The web configuration file gives roles and namespaces to users and tokens; see docs/security.md."
    status = 403


class PeerForbidden(Forbidden):
    code = "PEER_FORBIDDEN"
    meaning = (
        "The request decides or binds, and the extender does not accept it from this address. Nothing was changed."
    )
    hint = "Add the network of kube-scheduler to extender.allow_from, or use a web configuration; see docs/extender.md."


class ExtenderStandby(ScopeError):
    code = "EXTENDER_STANDBY"
    meaning = "Only the leader of several replicas of the extender decides, and this replica is not the leader."
    hint = "kube-scheduler retries. The Service of the chart has only the leader, because the others are not ready."
    status = 503
    retryable = True


class ExtenderNotSynced(ScopeError):
    code = "EXTENDER_NOT_SYNCED"
    meaning = (
        "The extender became the leader and has not listed nodes, pods and quotas yet. It makes no decision until then."
    )
    hint = "This takes seconds. If it takes longer, /readyz names what is missing: often RBAC, or the API server."
    status = 503
    retryable = True


class LoginFailed(ScopeError):
    code = "LOGIN_FAILED"
    meaning = "The token, or the user and the password, are wrong."
    hint = "Tokens and users are in the web configuration file; the API token is the setting analyzer.api_token."
    status = 401


class NotLeader(ScopeError):
    code = "NOT_LEADER"
    meaning = "Only the leader of several replicas analyses and accepts changes, and this replica is not the leader."
    hint = "Retry through the Service, or ask the replica whose /health has leader: true."
    status = 409
    retryable = True


class Unknown(ScopeError):
    code = "OBJECT_UNKNOWN"
    meaning = "The results contain no such GPU, node, pod or namespace."
    hint = "/results lists all of them. Names are case-sensitive, and UUIDs must be complete."
    status = 404


class HistoryDown(ScopeError):
    code = "HISTORY_DOWN"
    meaning = "The store of results or decisions cannot be read or written. Analyses and decisions continue without it."
    hint = (
        "Check analyzer.history or extender.state, the disk or the database. What was not written is written when the "
        "store is back."
    )
    status = 503
    retryable = True


class RowRefused(ScopeError):
    code = "HISTORY_REFUSED"
    meaning = "The store works, but rejected one result or decision because of its content. Only that one is lost."
    hint = "The message contains the database's error. Please report it, with the log."


class CallFailed(ScopeError):
    code = "CALL_FAILED"
    meaning = "A call of the control service, a change of the cluster or a notice failed. It is retried for 24 hours."
    hint = "Check control.api_url, and the log of the service that is called. Of reclaim, the audit log has the answer."
    status = 502
    retryable = True


class AiSdkAbsent(ConfigInvalid):
    code = "AI_SDK_ABSENT"
    meaning = "ai.enabled is true, but the SDK of the language model's provider is not installed."
    hint = "Install it with pip install 'vgpuscope[ai]', or set ai.enabled to false."


class AiFailed(ScopeError):
    code = "AI_FAILED"
    meaning = "The language model answered with a server error."
    hint = "The numbers decide meanwhile, unless ai.required is true. Questions are asked again later."
    status = 502
    retryable = True
    provider_wide = True  # other questions would fail, too
    wait: float = 0.0  # seconds that the provider asked to wait


class AiUnreachable(AiFailed):
    code = "AI_UNREACHABLE"
    meaning = "The language model could not be reached."
    hint = "Check ai.api_url, DNS, the network policy and HTTPS_PROXY of the analyzer."


class AiTimeout(AiFailed):
    code = "AI_TIMEOUT"
    meaning = "The language model's answer was not complete within ai.timeout."
    hint = "Raise ai.timeout, or use a faster model."


class AiRateLimited(AiFailed):
    code = "AI_RATE_LIMITED"
    meaning = "The language model's provider limits requests, or the account has no credit left."
    hint = "Lower ai.max_per_cycle and ai.concurrency, or raise the limits of the account."


class AiBudgetSpent(AiFailed):
    code = "AI_BUDGET_SPENT"
    meaning = "ai.max_per_day requests were made in the last 24 hours. No more questions are asked for now."
    hint = "Raise ai.max_per_day, or leave it: opinions that were given stay valid."


class AiRejected(AiFailed):
    code = "AI_REJECTED"
    meaning = "The language model's provider rejected the request, for example because of the key or the model's name."
    hint = "Check ai.api_key, ai.model, ai.api_url and ai.api_version."
    retryable = False


class AiRedirected(AiFailed):
    code = "AI_REDIRECTED"
    meaning = "The language model's address answered with a redirect, which is never followed."
    hint = "Set ai.api_url to the final address."
    retryable = False


class AiAnswerInvalid(AiFailed):
    code = "AI_ANSWER_INVALID"
    meaning = "The language model's answer is not the JSON object that was asked for, or has values out of range."
    hint = "It changes nothing. Small models answer like this often: use a larger one."
    provider_wide = False


class AiAnswerTooLarge(AiFailed):
    code = "AI_ANSWER_TOO_LARGE"
    meaning = "The language model's answer is larger than 256 KiB."
    hint = "Check that ai.api_url is the address of a language model."
    retryable = False
    provider_wide = False


class CallRefused(CallFailed):
    code = "CALL_REFUSED"
    meaning = "A change of the cluster was refused, and trying again would not help. Nothing was changed."
    hint = "The message says why: a missing permission, an object that is gone, or one that was changed since."
    status = 409
    retryable = False


class CaseUnfit(ScopeError):
    code = "CASE_UNFIT"
    meaning = "The case is not in a state in which this can be done. Nothing was changed."
    hint = "/api/v1/reclaim lists every case with its state."
    status = 409


class LinkInvalid(ScopeError):
    code = "LINK_INVALID"
    meaning = "A link of a notice is incomplete, was changed, or was signed with another secret. Nothing was changed."
    hint = "Open the link from the notice itself; some programs break long links into two lines."
    status = 404


class LinkExpired(ScopeError):
    code = "LINK_EXPIRED"
    meaning = "A link of a notice is too old. Nothing was changed."
    hint = "Use the link of a newer notice, or ask an operator. notify.link_lifetime sets how long links are valid."
    status = 410


class LinkUsed(ScopeError):
    code = "LINK_USED"
    meaning = "A link of a notice was used before. It works once, so nothing was changed this time."
    hint = "Use another link of the notice, or ask an operator."
    status = 410


class BacktestBusy(ScopeError):
    code = "BACKTEST_BUSY"
    meaning = "Another back-test is running. A replica runs one at a time."
    hint = "Retry when it has ended. GET /api/v1/reclaim/backtest shows how far it is."
    status = 409
    retryable = True


class HistoryAbsent(ScopeError):
    code = "HISTORY_ABSENT"
    meaning = "The analyzer stores no results, so a back-test has nothing to replay."
    hint = "Set analyzer.history to a file or a postgresql:// URL."
    status = 409


class FollowerLate(ScopeError):
    code = "FOLLOWER_LATE"
    meaning = "A step after an analysis (metrics page, log table, store) did not end within its deadline."
    hint = "/health names the follower; the others ran. Look for a slow disk or database, or too little CPU."
    status = 503
    retryable = True


class SourceDown(ScopeError):
    code = "SOURCE_DOWN"
    meaning = "A data source could not be read. Its metrics are missing; all others are served."
    hint = "The log and `vgpuscope top` name the source and the reason."
    status = 503
    retryable = True
    absent: ClassVar[bool] = False  # True: known not to exist on this node, which is not a fault


class DriverAbsent(SourceDown):
    code = "DRIVER_ABSENT"
    meaning = "libnvidia-ml.so.1 cannot be loaded: the node has no driver, or it is not mounted into the container."
    hint = "In a container, use the nvidia runtime class or NVIDIA_DRIVER_CAPABILITIES=utility. The agent retries."
    absent = True


class DriverFailed(SourceDown):
    code = "DRIVER_FAILED"
    meaning = "NVML returns an error for every GPU (driver unloaded, version mismatch, permission lost)."
    hint = (
        "`nvidia-smi` on the node shows the same error. The agent reconnects automatically when the driver is back. "
        "After an upgrade of the driver, restart the agent, so that it loads the new library."
    )


class DriverHung(SourceDown):
    code = "DRIVER_HUNG"
    meaning = "A call to the driver did not return within its deadline."
    hint = "Look for XIDs in the kernel log. The agent continues as soon as the call returns."


class ProfilingAbsent(SourceDown):
    code = "PROFILING_ABSENT"
    meaning = "No GPU of this node has profiling counters that the driver can read (NVML GPM: Hopper and later)."
    hint = "On other GPUs, let the agent read a dcgm-exporter with profiling fields: --dcgm auto or --dcgm URL."
    absent = True


class ProfilingOff(SourceDown):
    code = "PROFILING_OFF"
    meaning = "The agent has stopped reading profiling counters: a call hung, or they disturbed memory queries."
    hint = "Other values are not affected. Update the driver, then restart the agent; or use --dcgm."
    absent = True  # the agent works without them, so it stays ready


class DcgmUnreadable(SourceDown):
    code = "PROFILING_UNREADABLE"
    meaning = "The dcgm-exporter of --dcgm does not answer with a page of metrics."
    hint = "Check the address with curl, and that the exporter's pod runs."


class DcgmWithoutFields(SourceDown):
    code = "PROFILING_FIELDS_MISSING"
    meaning = "The dcgm-exporter of --dcgm has no profiling fields (DCGM_FI_PROF_*)."
    hint = "Add them to the exporter's list of fields, and run it with SYS_ADMIN (docs/signals.md)."


class DcgmUnusable(SourceDown):
    code = "PROFILING_UNUSABLE"
    meaning = "The dcgm-exporter of --dcgm has profiling fields, but with other labels, units or GPUs than expected."
    hint = "The message names the reasons, and docs/signals.md explains each. The agent counts them as dropped values."


class DcgmNotFound(SourceDown):
    code = "PROFILING_NOT_FOUND"
    meaning = "--dcgm auto has found no dcgm-exporter pod on this node, or more than one."
    hint = "Check that --pods names the pods of this node, or give the exporter's address with --dcgm URL."
    absent = True


class RegionsUnreadable(SourceDown):
    code = "REGIONS_UNREADABLE"
    meaning = "HAMi's directory of container regions exists but cannot be listed."
    hint = "Mount <hook path>/containers into the agent, and run it as a user with permission to read it."


class RegionsAbsent(SourceDown):
    code = "REGIONS_ABSENT"
    meaning = "The directory of container regions does not exist: this node has no HAMi, or it is not mounted."
    hint = "Set --hook-path (HAMi's default: /usr/local/vgpu) and mount it read-only. Without HAMi, ignore this."
    absent = True


class RegionRefused(SourceDown):
    code = "REGION_REFUSED"
    meaning = "A region file has a size, magic number or version of no known HAMi release."
    hint = "The log names the file and the reason. A file that was just created is read at the next sample."

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message or reason)
        self.reason = reason


class CgroupsAbsent(SourceDown):
    code = "CGROUPS_ABSENT"
    meaning = "There are no cgroups at --cgroup-root, so CPU, memory and I/O of containers are not known."
    hint = "Mount the host's /sys/fs/cgroup read-only and set --cgroup-root to it, or use --cgroup-root none."
    absent = True


class CgroupsUnreadable(SourceDown):
    code = "CGROUPS_UNREADABLE"
    meaning = "The directory of --cgroup-root exists, but the agent may not list it."
    hint = "Run the agent as a user who may read the host's /sys/fs/cgroup, or use --cgroup-root none."
    absent = True  # the agent works without it, so it stays ready


class CgroupsUnknown(SourceDown):
    code = "CGROUPS_UNKNOWN"
    meaning = "The directory of --cgroup-root has neither cgroup v2 (cgroup.controllers) nor the controllers of v1."
    hint = "Set --cgroup-root to the root of the host's hierarchy, not to a part of it or to another directory."
    absent = True


class CgroupsHung(SourceDown):
    code = "CGROUPS_HUNG"
    meaning = "Reading the cgroups of containers did not end in time; their CPU, memory and I/O are not known now."
    hint = "The kernel does not return from the read. All other values are still read; the agent retries."


class KubeUnreadable(SourceDown):
    code = "KUBE_UNREADABLE"
    meaning = "Pods or other objects could not be read from the API server, the kubelet or the file."
    hint = "Check --kubeconfig, --pods and the network. Known objects are kept, and new pods are shown by UID."


class KubeObjectUnreadable(KubeUnreadable):
    """One object cannot be asked for or understood; the API server answers for all others."""

    retryable = False


class KubeForbidden(KubeUnreadable):
    code = "KUBE_FORBIDDEN"
    meaning = "The API server or the kubelet rejected the credentials."
    hint = "The service account needs get, list and watch for this kind (nodes/proxy for --pods kubelet)."


class KubeUnwritten(ScopeError):
    code = "KUBE_UNWRITTEN"
    meaning = "The API server rejected a change, or did not answer: then it is not known whether the change was made."
    hint = "The message contains the server's error; the object itself shows whether it was changed."
    status = 502
    retryable = True


class KubeConflict(KubeUnwritten):
    code = "KUBE_CONFLICT"
    meaning = "The object was changed since it was read, or the pod was bound already; nothing was changed."
    hint = "Read the object again, then decide again."
    status = 409


class KubeAbsent(KubeUnwritten):
    code = "KUBE_ABSENT"
    meaning = "The object to be changed does not exist any more."
    hint = "It was deleted meanwhile; there is nothing to do."
    status = 404
    retryable = False


class AllocateFailed(ScopeError):
    code = "SCHED_ALLOCATE_FAILED"
    meaning = "The device plugin could not give a container its devices. The kubelet ends the pod."
    hint = "The message has the reason. Delete the pod so that it is scheduled again."
    status = 500


class AllocatePodUnknown(AllocateFailed):
    code = "ALLOCATE_POD_UNKNOWN"
    meaning = "The kubelet asks for devices, but no pod of this node waits for devices that a scheduler assigned."
    hint = "The pod was deleted meanwhile, or it bypassed HAMi's scheduler: check its schedulerName and the webhook."


class AllocateAmbiguous(AllocateFailed):
    code = "ALLOCATE_AMBIGUOUS"
    meaning = (
        "Several pods of this node may be the one for which the kubelet asks, so none gets the devices of another."
    )
    hint = "A pod reached the node without the scheduler: check schedulerName and nodeName of the pods that are named."


class AllocateForged(AllocateFailed):
    code = "ALLOCATE_FORGED"
    meaning = "The assignment of the pod is not one that the scheduler made for it."
    hint = "The pod's annotations were changed; its managedFields say by which program. Delete the pod."


class AllocateCountMismatch(AllocateFailed):
    code = "ALLOCATE_COUNT_MISMATCH"
    meaning = "The kubelet asks for another number of devices than the scheduler assigned to the container."
    hint = "Two schedulers may place pods on this node. Compare the pod's resources with its assignment annotation."


class AllocateDeviceUnknown(AllocateFailed):
    code = "ALLOCATE_DEVICE_UNKNOWN"
    meaning = "The scheduler assigned a GPU or a MIG instance that this node does not have."
    hint = "The GPU was replaced, or the MIG instances were changed, after the pod was scheduled. Delete the pod."


class AllocateDeviceUnhealthy(AllocateFailed):
    code = "ALLOCATE_DEVICE_UNHEALTHY"
    meaning = "The GPU that the scheduler assigned became unhealthy before the container started."
    hint = "Delete the pod so that it is scheduled again. docs/plugin.md says when a GPU is healthy again."


class AllocateDirectory(AllocateFailed):
    code = "ALLOCATE_DIRECTORY"
    meaning = "The directory for the container's region could not be created on the node, or not removed later."
    hint = "Check that the hook path is mounted into the device plugin and that its disk is writable and not full."


class KubeletAbsent(SourceDown):
    code = "KUBELET_ABSENT"
    meaning = "The kubelet's registration socket does not exist: the kubelet is stopped, or its directory not mounted."
    hint = "Mount the kubelet's directory device-plugins; --kubelet-dir names it. It registers when the socket appears."


class KubeletDown(SourceDown):
    code = "KUBELET_DOWN"
    meaning = "The kubelet did not accept the device plugin's registration."
    hint = "The message has the kubelet's answer. It is tried again within seconds."


class PodResourcesAbsent(SourceDown):
    code = "PODRESOURCES_ABSENT"
    meaning = "The PodResources socket does not exist: this node has no kubelet, or its directory is not mounted."
    hint = "Mount the directory /var/lib/kubelet/pod-resources. Without Kubernetes, use --podresources-socket none."
    absent = True


class PodResourcesDown(SourceDown):
    code = "PODRESOURCES_DOWN"
    meaning = "The kubelet's PodResources socket does not answer."
    hint = "Mount the directory /var/lib/kubelet/pod-resources (not the socket) into the agent."


class PageMalformed(SourceDown):
    code = "PAGE_MALFORMED"
    meaning = "A scraped page has lines that are not in Prometheus' text format, or too many series. They are skipped."
    hint = "`promtool check metrics` reads the page of that target and names the lines. All other lines are used."


class QueryFailed(SourceDown):
    code = "QUERY_FAILED"
    meaning = "Prometheus could not be reached, or returned an error for a query. The values of that query are unknown."
    hint = "The message has the part of the query and the server's error. The next analysis retries."
    answered = False  # True: the server itself rejected the query


class QueryTimeout(QueryFailed):
    code = "QUERY_TIMEOUT"
    meaning = "Prometheus did not answer a query before the analysis' deadline. The values of that query are unknown."
    hint = "Raise prometheus.deadline, shorten the window, or use recording rules."


class QueryForbidden(QueryFailed):
    code = "QUERY_FORBIDDEN"
    meaning = "Prometheus, or a proxy in front of it, rejected the credentials."
    hint = "Check user, password or token, and the tenant header (X-Scope-OrgID for Mimir)."


class AnswerUnreadable(QueryFailed):
    code = "ANSWER_UNREADABLE"
    meaning = "The answer is not from Prometheus' HTTP API: it is HTML, truncated, too large or has another format."
    hint = "prometheus.url must end before /api/v1. A login page in front of Prometheus answers with HTML."


class AnswerPartial(SourceDown):
    code = "ANSWER_PARTIAL"
    meaning = "Thanos, Mimir or VictoriaMetrics answered, but reported that some of its stores did not."
    hint = "Check which store is down. GPUs without samples are unknown; all others are analysed."


class SamplesRefused(SourceDown):
    code = "SAMPLES_REFUSED"
    meaning = "Too many series have impossible values to check each of them. These terms are excluded from the score."
    hint = "The exporter reports sentinels, NaN or values out of range: compare its /metrics with nvidia-smi."


class WindowTooShort(SourceDown):
    code = "WINDOW_TOO_SHORT"
    meaning = "The window has fewer than five samples of a GPU, because scrapes are too rare. The GPU is unknown."
    hint = "Set prometheus.time_window_min to at least five scrape intervals, or scrape more often."


class LimitReached(SourceDown):
    code = "LIMIT_REACHED"
    meaning = "A scrape target or the fleet reports more GPUs or tenants than a limit allows. The rest is ignored."
    hint = "The log names the target. docs/metrics-analyzer.md lists the limits; real clusters are far below them."


class NoKnownMetrics(SourceDown):
    code = "METRICS_ABSENT"
    meaning = "Prometheus answers, but has none of the GPU metrics that the analyzer reads."
    hint = "Let it scrape dcgm-exporter or vgpuscope agent. Check prometheus.url and prometheus.query_condition."


def error_types() -> tuple[type[ScopeError], ...]:
    """All error types with a code of their own, parents first; other modules may have kinds of them without one."""
    found: list[type[ScopeError]] = []
    queue: list[type[ScopeError]] = [ScopeError]
    while queue:
        kind = queue.pop(0)
        if "code" in vars(kind):
            found.append(kind)
        queue.extend(kind.__subclasses__())
    return tuple(found)


def error_of(code: str) -> type[ScopeError] | None:
    """The error with this code; None: this version has none."""
    return {kind.code: kind for kind in error_types()}.get(code)
