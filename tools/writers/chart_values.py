"""The values of the chart, as types: values.schema.json is made from them, and values.yaml has exactly these keys."""

# ruff: noqa: N815 - names of fields are keys of values.yaml, in the style of Kubernetes

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

Free = dict[str, Any]  # an object of the Kubernetes API, which the API server checks
FreeList = list[dict[str, Any]]
Words = dict[str, str]  # labels, annotations, selectors
Port = Annotated[int, Meta(ge=1, le=65535)]
Path = Annotated[str, Meta(pattern="^/.+[^/]$")]
MaybePath = Annotated[str, Meta(pattern="^(/.+[^/])?$")]
Period = Annotated[str, Meta(pattern="^([0-9]+(ms|s|m|h))+$")]
MaybePeriod = Annotated[str, Meta(pattern="^([0-9]+(ms|s|m|h))*$")]
Quantity = Annotated[str, Meta(pattern="^[0-9.]+([EPTGMk]i?)?$")]
Share = Annotated[str, Meta(pattern="^[0-9]+%$")] | Annotated[int, Meta(ge=1)]
ServiceType = Literal["ClusterIP", "NodePort", "LoadBalancer"]


class Values(Struct, kw_only=True, forbid_unknown_fields=True):
    """Values of the chart vgpuscope."""

    nameOverride: str
    fullnameOverride: str
    commonLabels: Words
    image: "Image"
    listenAddress: Annotated[str, Meta(min_length=1)]
    assumeCRDs: bool
    config: Free  # replaced by the sections of the settings file
    agent: "Agent"
    cluster: "Cluster"
    analyzer: "Analyzer"
    extender: "Extender"
    plugin: "Plugin"
    admission: "Admission"
    monitor: "Monitor"
    rules: "Rules"
    dashboards: "Dashboards"
    networkPolicy: "NetworkPolicy"
    compatibility: "Compatibility"
    global_: Free | UnsetType = field(default=UNSET, name="global")


class Image(Struct, kw_only=True, forbid_unknown_fields=True):
    """The image of all services."""

    repository: Annotated[str, Meta(min_length=1)]
    tag: str
    digest: Annotated[str, Meta(pattern="^(sha256:[0-9a-f]{64})?$")]
    pullPolicy: Literal["Always", "IfNotPresent", "Never"]
    pullSecrets: FreeList


class _Pod(Struct, kw_only=True, forbid_unknown_fields=True):
    enabled: bool
    port: Port
    nodeSelector: Words
    tolerations: FreeList
    affinity: Free
    priorityClassName: str
    web: "Web"
    resources: Free
    extraEnv: FreeList
    podLabels: Words
    podAnnotations: Words


class Web(Struct, kw_only=True, forbid_unknown_fields=True):
    """A Secret with a web configuration."""

    secret: str
    tls: bool


class Agent(_Pod, kw_only=True, forbid_unknown_fields=True):
    """The node agent."""

    nodeLabels: dict[str, str | None]  # one of them is enough
    runtimeClassName: str
    maxUnavailable: Share
    hami: "Hami"
    podResources: "PodResources"
    cgroups: "Cgroups"
    gpuAllocation: "GpuAllocation"


class Hami(Struct, kw_only=True, forbid_unknown_fields=True):
    """HAMi's directory on the nodes."""

    path: Path
    mount: Literal["parent", "directory", "none"]


class PodResources(Struct, kw_only=True, forbid_unknown_fields=True):
    """The kubelet's PodResources socket."""

    enabled: bool
    claims: bool
    path: Path


class Cgroups(Struct, kw_only=True, forbid_unknown_fields=True):
    """The host's cgroups."""

    enabled: bool
    path: Path


class GpuAllocation(Struct, kw_only=True, forbid_unknown_fields=True):
    """The virtualisation ratio of k8s-vgpu-monitor."""

    ratio: Annotated[float, Meta(gt=0)] | None = None
    configMap: str
    hostPath: MaybePath


class Service(Struct, kw_only=True, forbid_unknown_fields=True):
    """A Service."""

    type: ServiceType
    port: Port


class Cluster(_Pod, kw_only=True, forbid_unknown_fields=True):
    """The cluster exporter."""

    service: Service


class Analyzer(_Pod, kw_only=True, forbid_unknown_fields=True):
    """The analyzer with the console."""

    replicas: Annotated[int, Meta(ge=1, le=9)]
    service: Service
    persistence: "Persistence"
    secretEnv: dict[str, "SecretKey"]
    podDisruptionBudget: "DisruptionBudget"
    ingress: "Ingress"
    httpRoute: "HttpRoute"
    reclaimNamespaces: list[Annotated[str, Meta(min_length=1)]]


class Persistence(Struct, kw_only=True, forbid_unknown_fields=True):
    """The volume of the history."""

    enabled: bool
    existingClaim: str
    storageClass: str
    accessModes: list[Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"]]
    size: Quantity
    annotations: Words


class SecretKey(Struct, kw_only=True, forbid_unknown_fields=True):
    """Where the value of a variable is."""

    name: Annotated[str, Meta(min_length=1)]
    key: Annotated[str, Meta(min_length=1)]
    optional: bool = False


class DisruptionBudget(Struct, kw_only=True, forbid_unknown_fields=True):
    """A PodDisruptionBudget."""

    enabled: bool
    maxUnavailable: Share


class Ingress(Struct, kw_only=True, forbid_unknown_fields=True):
    """An Ingress to the console."""

    enabled: bool
    className: str
    annotations: Words
    hosts: list["IngressHost"]
    tls: FreeList


class IngressHost(Struct, kw_only=True, forbid_unknown_fields=True):
    """One host of the Ingress."""

    host: Annotated[str, Meta(min_length=1)]
    path: Annotated[str, Meta(pattern="^/")] = "/"


class HttpRoute(Struct, kw_only=True, forbid_unknown_fields=True):
    """A HTTPRoute to the console."""

    enabled: bool
    annotations: Words
    parentRefs: FreeList
    hostnames: list[str]


class Extender(_Pod, kw_only=True, forbid_unknown_fields=True):
    """The scheduler extender, with a kube-scheduler of its own."""

    replicas: Annotated[int, Meta(ge=1, le=9)]
    schedulerName: Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
    kubeScheduler: "KubeScheduler"
    service: Service
    webhook: "Webhook"
    seal: "Seal"
    persistence: "Persistence"
    secretEnv: dict[str, "SecretKey"]
    podDisruptionBudget: "DisruptionBudget"


class Seal(Struct, kw_only=True, forbid_unknown_fields=True):
    """Seals on assignments."""

    enabled: bool | Literal["auto"]
    secret: str


class KubeScheduler(Struct, kw_only=True, forbid_unknown_fields=True):
    """The kube-scheduler that asks the extender."""

    image: "SchedulerImage"
    port: Port
    logLevel: Annotated[int, Meta(ge=0, le=10)]
    extraArgs: list[Annotated[str, Meta(pattern="^--")]]
    resources: Free


class SchedulerImage(Struct, kw_only=True, forbid_unknown_fields=True):
    """The image of kube-scheduler."""

    repository: Annotated[str, Meta(min_length=1)]
    tag: str
    digest: Annotated[str, Meta(pattern="^(sha256:[0-9a-f]{64})?$")]
    pullPolicy: Literal["Always", "IfNotPresent", "Never"]


class Webhook(Struct, kw_only=True, forbid_unknown_fields=True):
    """The admission webhook."""

    enabled: bool
    secret: str
    caBundle: Annotated[str, Meta(pattern="^[A-Za-z0-9+/=]*$")]
    certManager: "CertManager"
    timeoutSeconds: Annotated[int, Meta(ge=1, le=30)]
    namespaceSelector: Free


class CertManager(Struct, kw_only=True, forbid_unknown_fields=True):
    """A certificate that cert-manager issues."""

    enabled: bool
    issuer: Free


class Plugin(_Pod, kw_only=True, forbid_unknown_fields=True):
    """The device plugin."""

    runtimeClassName: str
    maxUnavailable: Share
    hookPath: Path
    kubeletPath: Path
    podResourcesPath: MaybePath


class Admission(Struct, kw_only=True, forbid_unknown_fields=True):
    """Who may write the annotations that say who has a GPU, and what extender and device plugin may change."""

    enabled: bool | Literal["auto"]
    accounts: list[Annotated[str, Meta(pattern="^[a-z0-9-]+/[a-z0-9.-]+$")]]
    users: list[Annotated[str, Meta(pattern="^[^'\"\\\\]+$")]]
    groups: list[Annotated[str, Meta(pattern="^[^'\"\\\\]+$")]]


class Monitor(Struct, kw_only=True, forbid_unknown_fields=True):
    """How Prometheus finds the services."""

    enabled: bool
    service: Service
    serviceMonitor: "ServiceMonitor"
    podMonitor: "Enabled"
    annotations: Literal["auto", "always", "never"]


class ServiceMonitor(Struct, kw_only=True, forbid_unknown_fields=True):
    """ServiceMonitors or PodMonitors."""

    enabled: bool
    namespace: str
    interval: Period
    scrapeTimeout: MaybePeriod
    path: Annotated[str, Meta(pattern="^/")]
    labels: Words
    endpoint: Free


class Enabled(Struct, kw_only=True, forbid_unknown_fields=True):
    """A part that can be enabled."""

    enabled: bool


class Rules(Struct, kw_only=True, forbid_unknown_fields=True):
    """PrometheusRules."""

    enabled: bool
    namespace: str
    labels: Words
    exclude: list[str]
    runbooks: Annotated[str, Meta(pattern="^(https?://.+/)?$")]


class Dashboards(Struct, kw_only=True, forbid_unknown_fields=True):
    """ConfigMaps with dashboards."""

    enabled: bool
    language: Literal["en", "zh", "both"]
    consoleUrl: Annotated[str, Meta(pattern="^https?://")]
    namespace: str
    labels: Words
    annotations: Words


class NetworkPolicy(Struct, kw_only=True, forbid_unknown_fields=True):
    """NetworkPolicies."""

    enabled: bool
    from_: FreeList = field(name="from")
    open: list[Literal["agent", "cluster", "analyzer", "extender", "plugin"]]
    egress: "Egress"


class Egress(Struct, kw_only=True, forbid_unknown_fields=True):
    """What the pods may connect to."""

    enabled: bool
    apiServerPorts: list[Port]
    to: FreeList


class Compatibility(Struct, kw_only=True, forbid_unknown_fields=True):
    """Names of the HAMi handbook."""

    handbookNames: bool
    handbookPodLabels: bool
    handbookRules: bool
    handbookDashboard: bool
