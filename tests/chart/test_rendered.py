"""What the chart renders, with values as different as clusters are: safe pods, small rights, names that fit together.

The rules for pods are those of the Pod Security Standards ("restricted"), with the agent's exceptions named here.
"""

import json
import os
import re
import shutil
from typing import Any

import msgspec
import pytest

from tests.chart.audit import granted
from tests.chart.helmrun import CHART, NAMESPACE, RELEASE, Object, helm, one, only, pod_specs, template
from tests.chart.valuesets import EVERYTHING, HANDBOOK, SETS
from tests.paths import REPOSITORY
from tools.writers.chart_values import Values
from vgpuscope.config import load
from vgpuscope.knowledge.stops import STOPPED_KINDS
from vgpuscope.model.service import EXTENDER_LEASE, LEADER_LABEL
from vgpuscope.sources.doctor.kube import NEEDED
from vgpuscope.version import __version__

pytestmark = pytest.mark.real
OPERATOR = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
POLICY = "ValidatingAdmissionPolicy"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", *WEBHOOKS, POLICY, f"{POLICY}Binding"}
ON_NODES = {"agent", "plugin"}  # components that work with the node itself
# Of the node, the device plugin changes its socket in the kubelet's directory, HAMi's directory, and HAMi's lock.
WRITTEN = {("plugin", "device-plugins"), ("plugin", "hook"), ("plugin", "lock")}


@pytest.fixture(params=SETS, ids=lambda name: name.replace(" ", "-"))
def values(request):
    return SETS[request.param]


@pytest.fixture
def objects(values):
    return template(values)


def test_alerts_and_panels_link_to_where_the_values_say():
    there = {
        "rules": {"runbooks": "https://docs.example.com/r/"},
        "dashboards": {"consoleUrl": "https://gpu.example.com"},
    }
    objects = template({"assumeCRDs": True, **there})
    texts = [json.dumps(o) for o in only(objects, "PrometheusRule")]
    assert '"runbook_url": "https://docs.example.com/r/GPUGhostAllocation.md"' in "".join(texts)
    assert "docs/runbooks/" not in "".join(texts)
    usual = "".join(json.dumps(o) for o in only(template({"assumeCRDs": True}), "PrometheusRule"))
    linked = re.findall(r'"runbook_url": "([^"]*)"', usual)
    assert linked
    assert all(re.fullmatch(r"https://.+/docs/runbooks/\w+\.md", one) for one in linked)
    boards = "".join(json.dumps(o) for o in only(objects, "ConfigMap"))
    assert "https://gpu.example.com" in boards
    assert "localhost:8080" not in boards


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The chart with a rule file and dashboards of our own, whatever the real ones are."""
    chart = tmp_path_factory.mktemp("chart") / "vgpuscope"
    shutil.copytree(CHART, chart)
    for folder in ("rules", "dashboards"):
        shutil.rmtree(chart / folder, ignore_errors=True)
        (chart / folder).mkdir()
    (chart / "rules" / "alerts.yaml").write_text(RULES)
    (chart / "rules" / "old.yaml").write_text(RULES.replace("Hot", "Old"))
    (chart / "rules" / "compat").mkdir()
    (chart / "rules" / "compat" / "alerts.yaml").write_text(RULES.replace("Hot", "Printed"))
    (chart / "dashboards" / "zh").mkdir()
    for name in ("vgpuscope-overview", "vgpuscope-node", "zh/vgpuscope-node-zh", "zh/vgpuscope-overview-zh"):
        (chart / "dashboards" / f"{name}.json").write_text(json.dumps({"title": "{{ $x }}", "uid": name}))
    return chart


RULES = """# a comment
groups:
  - name: hot
    rules:
      - alert: Hot
        expr: temperature > 90
        annotations:
          summary: 'GPU {{ $labels.gpu_uuid }} has {{ $value | humanize }} °C'
          description: |
            two
              lines
"""


def test_lint_finds_nothing(values):
    done = helm("lint", "--strict", str(CHART), values=values)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_object_is_rendered_twice_and_each_says_where_it_belongs(objects):
    seen = set()
    for o in objects:
        meta = o["metadata"]
        key = (o["kind"], meta.get("namespace"), meta["name"])
        assert key not in seen
        seen.add(key)
        assert meta["labels"]["app.kubernetes.io/instance"] == "scope"
        assert ("namespace" in meta) == (o["kind"] not in CLUSTER_WIDE), key
        assert len(meta["name"]) <= 63


# --- pods -------------------------------------------------------------------------------------------------------------


def test_pods_have_no_more_rights_on_the_node_than_their_work_needs(objects):
    for component, spec in pod_specs(objects).items():
        root = component in ON_NODES
        assert spec.get("hostPID", False) is (component == "agent")
        assert not {"hostNetwork", "hostIPC"} & set(spec)
        assert root or not [volume for volume in spec["volumes"] if "hostPath" in volume]
        for container in spec["containers"]:
            context = {**spec["securityContext"], **container["securityContext"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            closed = {"add": ["DAC_OVERRIDE", "FOWNER"]} if component == "plugin" else {}  # directories of tenants
            assert context["capabilities"] == {"drop": ["ALL"]} | closed
            assert context["runAsNonRoot"] is not root
            assert (context["runAsUser"] == 0) is root
            assert "privileged" not in context
            assert all("hostPort" not in port for port in container["ports"])


def test_nothing_is_created_on_the_node_and_nothing_of_it_is_writable_but_for_the_plugins_work(objects):
    for component, spec in pod_specs(objects).items():
        of_the_node = {v["name"] for v in spec["volumes"] if "hostPath" in v}
        for volume in spec["volumes"]:
            if "hostPath" in volume:  # an empty type lets the container runtime create a directory
                made = component == "plugin" and volume["name"] in {"hook", "lock"}
                assert volume["hostPath"]["type"] in ({"DirectoryOrCreate"} if made else {"Directory", "File"})
                assert volume["hostPath"]["path"] != "/"
        for mount in (mount for container in spec["containers"] for mount in container["volumeMounts"]):
            assert mount.get("readOnly") or mount["name"] not in of_the_node or (component, mount["name"]) in WRITTEN


def test_a_node_without_hami_can_start_the_agent():
    """What is mounted exists on every node: /usr/local by the FHS, the others because the kubelet needs them."""
    spec = pod_specs(template())["agent"]
    assert {v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v} == {
        "/usr/local",
        "/var/lib/kubelet/pod-resources",
        "/sys/fs/cgroup",
    }
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "hami"]
    assert settings_of(template(), "agent")["agent"]["hook_path"] == f"{mount['mountPath']}/vgpu"
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "cgroup"]
    assert settings_of(template(), "agent")["agent"]["cgroup_root"] == mount["mountPath"]


def test_every_container_has_minutes_to_start_before_liveness_counts(objects):
    """On a busy node, containers were ended 30 seconds after their start, before they answered."""
    for container in (each for spec in pod_specs(objects).values() for each in spec["containers"]):
        startup, live = container["startupProbe"], container["livenessProbe"]
        assert startup["httpGet"] == live["httpGet"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 300


def test_an_agent_runs_on_a_node_with_any_of_the_labels_and_on_every_node_without_labels():
    def affinity(values):
        return pod_specs(template({"agent": values}))["agent"].get("affinity")

    def terms(values):
        required = affinity(values)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        found = [one["matchExpressions"] for one in required["nodeSelectorTerms"]]
        assert all(len(one) == 1 and one[0]["operator"] == "In" for one in found)
        return {(one[0]["key"], *one[0]["values"]) for one in found}

    usual = {("gpu", "on"), ("nvidia.com/gpu.present", "true"), ("vgpuscope.io/plugin", "on")}
    assert terms({}) == usual
    assert terms({"nodeLabels": {"pool": "gpu", "gpu": None}}) == (usual - {("gpu", "on")}) | {("pool", "gpu")}
    assert affinity({"nodeLabels": dict.fromkeys(key for key, _ in usual)}) is None
    both = affinity({"affinity": {"podAntiAffinity": {"x": 1}}})
    assert set(both) == {"nodeAffinity", "podAntiAffinity"}


def test_pods_say_what_they_need_of_cpu_and_memory(objects):
    for container in (each for spec in pod_specs(objects).values() for each in spec["containers"]):
        resources = container["resources"]
        assert set(resources["requests"]) == {"cpu", "memory"}
        assert "memory" in resources["limits"]


def test_no_pod_can_fill_the_disk_of_its_node(objects):
    """The kubelet evicts a pod whose emptyDir is larger than its limit; without one, the node runs full first."""
    directories = [v for spec in pod_specs(objects).values() for v in spec["volumes"] if "emptyDir" in v]
    assert all(re.fullmatch("[0-9]+[GM]i", v["emptyDir"]["sizeLimit"]) for v in directories)


def test_every_mount_has_its_volume_and_every_volume_its_object(objects):
    made = {(o["kind"], o["metadata"]["name"]) for o in objects}
    given = {("ConfigMap", "ratio"), ("Secret", "web"), ("Secret", "webhook-tls")}  # by the one who installs
    given |= {("Secret", o["spec"]["secretName"]) for o in only(objects, "Certificate")}
    for spec in pod_specs(objects).values():
        names = {v["name"] for v in spec["volumes"]}
        assert {m["name"] for container in spec["containers"] for m in container["volumeMounts"]} == names
        assert ("ServiceAccount", spec["serviceAccountName"]) in made
        for volume in spec["volumes"]:
            for key, kind, name in (
                ("configMap", "ConfigMap", "name"),
                ("secret", "Secret", "secretName"),
                ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
            ):
                if key in volume:
                    assert (kind, volume[key][name]) in made | given


def test_services_and_policies_select_the_pods_they_are_for(objects):
    templates = [o["spec"]["template"] for o in objects if o["kind"] in {"DaemonSet", "Deployment"}]
    for o in (*only(objects, "Service"), *only(objects, "NetworkPolicy"), *only(objects, "PodDisruptionBudget")):
        selector = o["spec"].get("selector") or o["spec"]["podSelector"]
        selector = {k: v for k, v in selector.get("matchLabels", selector).items() if k != LEADER_LABEL}
        (found,) = [t for t in templates if selector.items() <= t["metadata"]["labels"].items()]
        ports = {p["name"] for p in found["spec"]["containers"][0]["ports"]}
        probe = found["spec"]["containers"][0]["livenessProbe"]["httpGet"]
        for port in o["spec"].get("ports", ()):
            assert port["targetPort"] in ports
            assert (port.get("appProtocol") == "https") == (probe["scheme"] == "HTTPS")  # by which the analyzer scrapes
        for rule in o["spec"].get("ingress", ()):
            assert {port["port"] for port in rule["ports"]} <= ports


# --- rights -----------------------------------------------------------------------------------------------------------

CHANGED = {
    "extender": {
        ("pods", "patch"),
        ("nodes", "patch"),
        ("pods/binding", "create"),
        ("leases", "update"),
        ("leases", "patch"),
    },
    "plugin": {("pods", "patch"), ("nodes", "patch"), ("events", "create")},
}


def test_each_component_has_its_own_account_and_only_those_that_schedule_or_free_gpus_change_anything(objects):
    """An analyzer that is to free GPUs may change the owners of pods. What the scheduling parts change is listed."""
    accounts = [spec["serviceAccountName"] for spec in pod_specs(objects).values()]
    assert len(accounts) == len(set(accounts))
    for role in (*only(objects, "ClusterRole"), *only(objects, "Role")):
        for rule in role["rules"]:
            changes = set(rule["verbs"]) - {"get", "list", "watch"}
            component = role["metadata"]["labels"]["app.kubernetes.io/component"]
            assert "*" not in (*rule["resources"], *rule["apiGroups"])
            assert not {"secrets", "configmaps", "nodes/proxy"} & set(rule["resources"])
            assert not {"delete", "deletecollection", "escalate", "bind", "impersonate"} & changes
            if component in CHANGED:
                assert {(resource, verb) for resource in rule["resources"] for verb in changes} <= CHANGED[component]
                continue
            assert not changes or (acts(objects) and component == "analyzer")
            assert changes <= {"patch", "create"}
            assert "create" not in changes or rule["resources"] in (["pods/eviction"], ["events"])
            assert "patch" not in changes or not {"pods", "namespaces", "nodes"} & set(rule["resources"])


def acts(objects) -> bool:
    """Whether the analyzer's settings say that it frees GPUs itself."""
    settings = [o for o in only(objects, "ConfigMap") if o["metadata"]["name"].endswith("-analyzer")]
    found = msgspec.yaml.decode(settings[0]["data"]["config.yaml"]) if settings else {}
    live = found.get("control", {}).get("enabled") and found["control"].get("dry_run", True) is False
    return bool(live and found.get("reclaim", {}).get("action") == "scale")


def test_doctor_misses_no_right_that_the_chart_does_not_give():
    """It reviews the accounts of our pods: a right that no role has would be red in every cluster."""
    objects = template(SETS["schedules"])
    for component, needed in NEEDED.items():
        rights = {
            (one.verb, one.group, one.resource)
            for one in granted(objects, one(objects, "ServiceAccount", component)["metadata"]["name"])
        }
        assert set(needed) <= rights, component


def test_only_pods_with_rights_get_a_token(objects):
    bound = {
        subject["name"]
        for binding in (*only(objects, "ClusterRoleBinding"), *only(objects, "RoleBinding"))
        for subject in binding["subjects"]
    }
    for spec in pod_specs(objects).values():
        assert spec["automountServiceAccountToken"] is (spec["serviceAccountName"] in bound)
    assert all(o["automountServiceAccountToken"] is False for o in only(objects, "ServiceAccount"))


def test_with_named_namespaces_the_cluster_exporter_may_read_pods_only_there():
    objects = template({"config": {"cluster": {"namespaces": ["ml", "vision"]}}})
    role = one(objects, "ClusterRole", "cluster")
    assert {r for rule in role["rules"] for r in rule["resources"]} == {"nodes", "resourceslices"}
    roles = {o["metadata"]["namespace"]: o["rules"] for o in only(objects, "Role", "cluster")}
    [(home, [leases])] = [(place, rules) for place, rules in roles.items() if place not in {"ml", "vision"}]
    assert (leases["resources"], leases["resourceNames"]) == (["leases"], [EXTENDER_LEASE])
    assert {o["metadata"]["namespace"] for o in only(objects, "ServiceAccount", "cluster")} == {home}
    assert set(roles) == {"ml", "vision", home}
    as_text = template({"config": {"cluster": {"namespaces": "ml, vision"}}})
    assert only(as_text, "Role") == only(objects, "Role")


def test_two_releases_share_no_object_of_the_cluster():
    first = template(SETS["decisions in a database"])
    other = template(SETS["decisions in a database"], "--namespace", "other")
    names = [
        {(o["kind"], o["metadata"]["name"]) for o in found if o["kind"] in CLUSTER_WIDE} for found in (first, other)
    ]
    assert names[0]
    assert not names[0] & names[1]


# --- settings ---------------------------------------------------------------------------------------------------------


def settings_of(objects: list[Object], component: str) -> dict:
    spec = pod_specs(objects)[component]
    (name,) = [v["configMap"]["name"] for v in spec["volumes"] if v["name"] == "config"]
    (found,) = [o for o in only(objects, "ConfigMap") if o["metadata"]["name"] == name]
    return msgspec.yaml.decode(found["data"]["config.yaml"])


def test_the_services_accept_the_settings_that_the_chart_writes(objects, tmp_path):
    for component, spec in pod_specs(objects).items():
        container = spec["containers"][0]
        assert container["args"] == [component, "--config", "/etc/vgpuscope/config.yaml"]
        file = tmp_path / f"{component}.yaml"
        file.write_text(json.dumps(settings_of(objects, component)))
        environ = {e["name"]: e.get("value", "x" * 32) for e in container.get("env", ())}
        loaded = load(flags={}, environ=environ, file=str(file), sections=(component,))
        listen = getattr(loaded.config, component).listen
        assert listen.rpartition(":")[2] == str(container["ports"][0]["containerPort"])
        if component == "analyzer":
            assert loaded.config.analyzer.history in {
                "/var/lib/vgpuscope/history.db",
                "postgresql://scope@db/scope",
            }


def test_large_numbers_stay_numbers():
    assert settings_of(template(EVERYTHING), "cluster")["cluster"]["max_series"] == 64_000_000


def test_the_analyzer_finds_the_services_of_its_release():
    objects = template()
    settings = settings_of(objects, "analyzer")["analyzer"]
    agents, cluster = one(objects, "Service", "agent"), one(objects, "Service", "cluster")
    assert settings["discover_services"] == [f"{NAMESPACE}/{agents['metadata']['name']}:metrics"]
    assert settings["cluster_url"] == f"http://{cluster['metadata']['name']}.{NAMESPACE}:31993"
    with_prometheus = settings_of(template(SETS["prometheus"]), "analyzer")
    assert with_prometheus["prometheus"]["url"] == "http://prometheus.monitoring:9090"
    assert "discover_services" not in with_prometheus["analyzer"]


def test_the_analyzer_shows_decisions_and_the_extender_knows_idle_workloads():
    objects = template(SETS["schedules"])
    service = one(objects, "Service", "extender-leader")
    shown = settings_of(objects, "analyzer")["analyzer"]["extender_url"]
    assert shown == f"http://{service['metadata']['name']}.{NAMESPACE}.svc:8080"
    api = one(objects, "Service", "analyzer")
    assert settings_of(objects, "extender")["extender"]["analyzer_url"] == (
        f"http://{api['metadata']['name']}.{NAMESPACE}:{api['spec']['ports'][0]['port']}"
    )
    assert "extender_url" not in settings_of(template(), "analyzer")["analyzer"]


@pytest.mark.parametrize("name", ["in place of HAMi", "decisions in a database", "webhook with a web configuration"])
def test_the_analyzer_trusts_the_authority_of_the_webhooks_certificate(name):
    """The extender's port has that certificate, so without it no decision is shown; its key stays away."""
    objects = template(SETS[name])
    pod = one(objects, "Deployment", "analyzer")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (file,) = (variable["value"] for variable in container["env"] if variable["name"] == "VGPUSCOPE_CA_FILE")
    mount = next(m for m in container["volumeMounts"] if m["mountPath"] == os.path.dirname(file))
    volume = next(volume for volume in pod["volumes"] if volume["name"] == mount["name"])
    if "secret" in volume:
        assert volume["secret"]["items"] == [{"key": "ca.crt", "path": os.path.basename(file)}]
    else:
        assert one(objects, "ConfigMap", "analyzer")["data"][os.path.basename(file)].strip() == "ca"


def test_a_change_of_settings_replaces_the_pods_that_read_them_and_no_others():
    def checksums(values):
        return {
            component: o["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for o in template(values)
            if o["kind"] in {"DaemonSet", "Deployment"}
            for component in [o["metadata"]["labels"]["app.kubernetes.io/component"]]
        }

    before, after = checksums({}), checksums({"config": {"thresholds": {"low_utilization": 30}}})
    assert {c for c in before if before[c] != after[c]} == {"analyzer"}


# --- scheduling -------------------------------------------------------------------------------------------------------


def test_nothing_schedules_and_nothing_takes_over_devices_unless_it_is_asked_to():
    components = {o["metadata"]["labels"]["app.kubernetes.io/component"] for o in template({"assumeCRDs": True})}
    assert not {"extender", "plugin"} & components


def scheduler_settings(objects: list[Object]) -> dict:
    (found,) = [o for o in only(objects, "ConfigMap", "extender") if o["metadata"]["name"].endswith("-kube-scheduler")]
    return msgspec.yaml.decode(found["data"]["config.yaml"])


def test_kube_scheduler_asks_the_extender_in_its_own_pod_about_every_resource_of_a_gpu():
    objects = template(SETS["schedules"])
    settings = scheduler_settings(objects)
    (extender,) = settings["extenders"]
    container, scheduler = pod_specs(objects)["extender"]["containers"]
    assert extender["urlPrefix"] == f"http://127.0.0.1:{container['ports'][0]['containerPort']}"
    assert (extender["filterVerb"], extender["bindVerb"], extender["nodeCacheCapable"]) == ("filter", "bind", True)
    assert "prioritizeVerb" not in extender
    names = {"gpu", "gpumem", "gpumem-percentage", "gpucores", "priority"}
    assert extender["managedResources"] == [
        {"name": f"nvidia.com/{name}", "ignoredByScheduler": True}
        for name in ("gpu", "gpumem", "gpumem-percentage", "gpucores", "priority")
    ]
    assert len(names) == len(extender["managedResources"])
    assert [profile["schedulerName"] for profile in settings["profiles"]] == ["vgpuscope-scheduler"]
    assert settings["leaderElection"]["resourceNamespace"] == NAMESPACE
    assert "--config=/etc/kube-scheduler/config.yaml" in scheduler["args"]


def test_the_extender_and_its_kube_scheduler_have_the_same_name_of_the_scheduler():
    objects = template(SETS["in place of HAMi"])
    assert settings_of(objects, "extender")["extender"]["scheduler_name"] == "hami-scheduler"
    assert [profile["schedulerName"] for profile in scheduler_settings(objects)["profiles"]] == ["hami-scheduler"]
    service = one(objects, "Service", "extender-leader")
    assert (service["metadata"]["name"], service["spec"]["ports"][0]["port"]) == ("hami-scheduler", 8080)


def test_decisions_are_asked_of_the_leader_and_metrics_of_every_replica():
    objects = template(SETS["schedules"] | {"assumeCRDs": True})
    leader, every = one(objects, "Service", "extender-leader"), one(objects, "Service", "extender")
    assert leader["spec"]["selector"] == {**every["spec"]["selector"], LEADER_LABEL: "leader"}
    scraped = one(objects, "ServiceMonitor", "extender")["spec"]["selector"]["matchLabels"].items()
    assert scraped <= every["metadata"]["labels"].items()
    assert not scraped <= leader["metadata"]["labels"].items()
    # a replica that stands by must not keep an upgrade from ending
    container = pod_specs(objects)["extender"]["containers"][0]
    assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"


def test_a_pod_of_the_extender_may_use_the_leases_that_it_is_told_to_use_and_no_others():
    objects = template(SETS["schedules"])
    named = [rule.get("resourceNames") for rule in one(objects, "Role", "extender")["rules"]]
    settings = scheduler_settings(objects)["leaderElection"]
    assert named == [[EXTENDER_LEASE], [settings["resourceName"]]]
    [own] = [o for o in only(objects, "ConfigMap") if o["metadata"]["name"].endswith("-extender")]
    assert msgspec.yaml.decode(own["data"]["config.yaml"])["extender"]["scheduler_lease"] == settings["resourceName"]


def test_rights_that_a_setting_makes_useless_are_not_granted():
    off = {"cluster": {"scheduler_metrics": "off"}}
    objects = template({"config": off, "agent": {"podResources": {"claims": False}}})
    assert not only(objects, "Role", "cluster")
    agent = one(objects, "ClusterRole", "agent")
    assert [rule["resources"] for rule in agent["rules"]] == [["pods"]]


@pytest.mark.parametrize("kinds", [["Deployment", "Job"], "Deployment, Job"])
def test_the_analyzer_may_change_only_the_kinds_that_it_is_to_change(kinds):
    takes = SETS["takes back"]["config"]

    def changed(**config):
        roles = only(template({"config": takes | config}), "ClusterRole", "analyzer")
        rules = [rule for role in roles for rule in role["rules"] if {"patch", "create"} & set(rule["verbs"])]
        return {resource for rule in rules for resource in rule["resources"]}

    every = changed()
    assert {"deployments", "statefulsets", "replicasets", "jobs", "notebooks", "inferenceservices"} < every
    assert len(every) == len(STOPPED_KINDS) + 1  # and events
    assert changed(kube={"kinds": kinds}) == {"deployments", "jobs", "events"}
    assert changed(kube={"kinds": ["Pod"]}) == {"pods/eviction", "events"}


def test_what_rbac_cannot_limit_is_limited_by_a_policy_where_the_cluster_has_them():
    """A policy names the account that the binding of the role names."""
    objects = template(SETS["schedules"])
    for component in ("extender", "plugin"):
        policy = one(objects, POLICY, f"{component}-writes")
        account = one(objects, "ServiceAccount", component)["metadata"]
        [condition] = policy["spec"]["matchConditions"]
        user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
        assert condition["expression"] == f"request.userInfo.username == '{user}'"
        assert (
            one(objects, f"{POLICY}Binding", f"{component}-writes")["spec"]["policyName"] == policy["metadata"]["name"]
        )
    assert not only(template(SETS["schedules"], "--kube-version", "1.29.0"), POLICY)
    assert not only(template(SETS["schedules"] | {"admission": {"enabled": False}}), POLICY)


def test_accounts_that_are_not_known_lose_no_right():
    """The chart cannot know the account of a HAMi device plugin beside our extender, which registers the GPUs."""

    def of_others(values):
        return [o for o in only(template(values), POLICY) if "-writes" not in o["metadata"]["name"]]

    assert len(of_others({"extender": {"enabled": True}, "plugin": {"enabled": True}})) == 2
    beside_hami = {"extender": {"enabled": True}}
    assert of_others(beside_hami) == []
    assert len(of_others(beside_hami | {"admission": {"accounts": ["kube-system/hami-device-plugin"]}})) == 2
    assert of_others({"plugin": {"enabled": True}}) == []


def test_the_webhook_reaches_the_extender_with_tls_and_cannot_keep_pods_from_being_created():
    for name in ("in place of HAMi", "decisions in a database", "webhook with a web configuration"):
        objects = template(SETS[name])
        (webhook,) = one(objects, "MutatingWebhookConfiguration")["webhooks"]
        service = one(objects, "Service", "extender-leader")
        told = webhook["clientConfig"]["service"]
        assert (told["name"], told["port"]) == (service["metadata"]["name"], service["spec"]["ports"][0]["port"])
        assert (webhook["failurePolicy"], told["path"]) == ("Ignore", "/webhook")
        excluded = webhook["namespaceSelector"]["matchExpressions"][0]
        assert (excluded["operator"], excluded["values"]) == ("NotIn", [NAMESPACE])
        (extender,) = scheduler_settings(objects)["extenders"]
        assert extender["urlPrefix"].startswith("https://127.0.0.1:")
        assert extender["enableHTTPS"] is True
        trusted = "caBundle" in webhook["clientConfig"] or only(objects, "Certificate")
        assert trusted


def test_the_device_plugin_sees_the_paths_that_containers_will_see():
    """A mount of a container is named by its path on the host, so both must be the same in the plugin's pod."""
    for values in (SETS["schedules"], {"plugin": {"enabled": True, "hookPath": "/opt/vgpu"}}):
        objects = template(values)
        spec = pod_specs(objects)["plugin"]
        (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["name"] == "hook"]
        (volume,) = [v["hostPath"]["path"] for v in spec["volumes"] if v["name"] == "hook"]
        assert settings_of(objects, "plugin")["plugin"]["hook_path"] == mount["mountPath"] == volume


def test_the_device_plugin_selects_no_node_of_hamis_plugin_by_default():
    """HAMi's DaemonSet selects gpu=on. The kubelet would use whichever of the two registered last."""
    spec = pod_specs(template({"plugin": {"enabled": True}}))["plugin"]
    assert spec["nodeSelector"] == {"vgpuscope.io/plugin": "on"}


# --- who may connect --------------------------------------------------------------------------------------------------

ALL = {name: {"enabled": True} for name in ("agent", "cluster", "analyzer", "extender", "plugin")}


def open_to_everybody(values: dict[str, Any]) -> set[str]:
    """The components whose policy names nobody, which lets everybody in."""
    values = {name: ALL.get(name, {}) | values.get(name, {}) for name in ALL | values}
    policies = only(template(values | {"assumeCRDs": True}), "NetworkPolicy")
    assert len(policies) == len(ALL)
    found = {p["metadata"]["labels"]["app.kubernetes.io/component"]: p["spec"]["ingress"] for p in policies}
    assert all(len(rules) == 1 and len(rules[0]["ports"]) == 1 for rules in found.values())
    return {name for name, rules in found.items() if "from" not in rules[0]}


def test_by_default_only_pods_of_the_cluster_connect():
    assert open_to_everybody({}) == set()
    for policy in only(template(ALL), "NetworkPolicy"):
        ours, pods = policy["spec"]["ingress"][0]["from"]
        labels = {"app.kubernetes.io/name": "vgpuscope", "app.kubernetes.io/instance": RELEASE}
        assert ours == {"podSelector": {"matchLabels": labels}}
        assert pods == {"namespaceSelector": {}}
        assert policy["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize(
    ("values", "component"),
    [
        ({"monitor": {"service": {"type": "NodePort"}}}, "agent"),
        ({"cluster": {"service": {"type": "NodePort"}}}, "cluster"),
        ({"analyzer": {"service": {"type": "LoadBalancer"}}}, "analyzer"),
        ({"analyzer": {"ingress": {"enabled": True, "hosts": [{"host": "gpu.example.com"}]}}}, "analyzer"),
        ({"analyzer": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}]}}}, "analyzer"),
        ({"extender": {"service": {"type": "LoadBalancer"}}}, "extender"),
        ({"extender": {"webhook": {"enabled": True, "secret": "tls", "caBundle": "Y2E="}}}, "extender"),
        ({"networkPolicy": {"open": ["plugin"]}}, "plugin"),
    ],
)
def test_what_is_meant_to_be_reached_from_outside_is_open_and_nothing_else(values, component):
    assert open_to_everybody(values) == {component}


def test_a_narrower_list_takes_the_place_of_all_pods():
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    for policy in only(template(ALL | {"networkPolicy": {"from": [monitoring]}}), "NetworkPolicy"):
        assert policy["spec"]["ingress"][0]["from"][1:] == [monitoring]


def test_without_policies_there_are_none():
    assert only(template(ALL | {"networkPolicy": {"enabled": False}}), "NetworkPolicy") == []


# --- Prometheus and Grafana -------------------------------------------------------------------------------------------


def test_monitors_keep_the_labels_of_the_series_and_scrape_no_pod_twice(objects):
    monitors = [*only(objects, "ServiceMonitor"), *only(objects, "PodMonitor")]
    for o in monitors:
        (endpoint,) = o["spec"].get("endpoints") or o["spec"]["podMetricsEndpoints"]
        assert endpoint["honorLabels"] is True
        assert o["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    assert len({o["kind"] for o in monitors}) <= 1
    annotated = [
        "prometheus.io/scrape" in o["spec"]["template"]["metadata"]["annotations"]
        for o in objects
        if o["kind"] in {"DaemonSet", "Deployment"}
    ]
    assert set(annotated) == {not monitors}


def test_a_service_monitor_selects_one_service_with_its_port():
    objects = template({"assumeCRDs": True})
    for monitor in only(objects, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        (service,) = [s for s in only(objects, "Service") if wanted.items() <= s["metadata"]["labels"].items()]
        assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_the_values_of_the_handbook_mean_what_it_says():
    objects = template(HANDBOOK | {"assumeCRDs": True, "compatibility": {"handbookNames": True}})
    service = one(objects, "Service", "agent")
    assert service["metadata"]["name"] == "hami-monitor"
    assert service["spec"]["ports"][0]["port"] == 41991
    web = one(objects, "Service", "analyzer")
    assert (web["metadata"]["name"], web["spec"]["ports"][0]["port"]) == ("hami-webui", 80)
    assert pod_specs(objects)["analyzer"]["containers"][0]["ports"][0]["containerPort"] == 8080
    monitor = one(objects, "ServiceMonitor", "agent")
    assert monitor["metadata"]["namespace"] == "monitoring"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["interval"], endpoint["path"]) == ("15s", "/metrics")
    off = template({"monitor": {"enabled": False}, "analyzer": {"enabled": False}, "assumeCRDs": True})
    assert not only(off, "ServiceMonitor")
    assert not only(off, "Service", "agent")


def test_what_takes_the_place_of_hamis_programs_has_their_names_in_commands_of_the_handbook():
    """kubectl logs deployment/hami-scheduler, kubectl exec deployment/hami-scheduler -- …, logs -c nvidia."""
    scheduling = {"extender": {"enabled": True}, "plugin": {"enabled": True}}
    named = template({**scheduling, "compatibility": {"handbookNames": True}})
    for kind, component, name, container in (
        ("Deployment", "extender", "hami-scheduler", "extender"),
        ("DaemonSet", "plugin", "hami-device-plugin", "nvidia"),
    ):
        workload = one(named, kind, component)
        pod = workload["spec"]["template"]
        assert workload["metadata"]["name"] == workload["metadata"]["labels"]["app"] == name
        assert pod["spec"]["containers"][0]["name"] == container
        assert pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == container
    names = {(o["kind"], o["metadata"]["name"]) for o in template(scheduling)}
    assert not {("Deployment", "hami-scheduler"), ("DaemonSet", "hami-device-plugin")} & names
    only_reading = template({"compatibility": {"handbookNames": True}})
    assert not {"hami-scheduler", "hami-device-plugin"} & {o["metadata"]["name"] for o in only_reading}


def test_the_handbooks_dashboard_is_in_the_language_of_the_dashboards(shipped):
    for language, uid in (
        ("en", "vgpuscope-overview"),
        ("both", "vgpuscope-overview"),
        ("zh", "zh/vgpuscope-overview-zh"),
    ):
        values = {"compatibility": {"handbookDashboard": True}, "dashboards": {"language": language}}
        found = {o["metadata"]["name"]: o for o in only(template(values, chart=shipped), "ConfigMap", "dashboards")}
        assert json.loads(found["hami-grafana-dashboard"]["data"]["dashboard.json"])["uid"] == uid


def test_the_handbooks_scrape_configuration_finds_the_pods_at_the_ports_it_names():
    objects = template({"compatibility": {"handbookPodLabels": True}})
    found = {
        o["spec"]["template"]["metadata"]["labels"].get("app"): o["spec"]["template"]["spec"]["containers"][0]["ports"][
            0
        ]["containerPort"]
        for o in objects
        if o["kind"] in {"DaemonSet", "Deployment"}
    }
    assert found == {"hami-scheduler": 31993, "hami-device-plugin": 9394, None: 8080}
    for o in objects:  # a selector cannot be changed later, so an option must not be part of it
        if o["kind"] in {"DaemonSet", "Deployment"}:
            assert "app" not in o["spec"]["selector"]["matchLabels"]


def test_rules_arrive_as_they_were_written(shipped):
    objects = template({"assumeCRDs": True, "rules": {"exclude": ["old"]}}, chart=shipped)
    rule = one(objects, "PrometheusRule")
    assert rule["metadata"]["name"].endswith("-alerts")
    assert rule["spec"] == msgspec.yaml.decode(RULES)
    assert len(only(template({"assumeCRDs": True}, chart=shipped), "PrometheusRule")) == 2
    assert not only(template({"assumeCRDs": True, "rules": {"enabled": False}}, chart=shipped), "PrometheusRule")
    printed = template({"assumeCRDs": True, "compatibility": {"handbookRules": True}}, chart=shipped)
    names = [o["metadata"]["name"] for o in only(printed, "PrometheusRule")]
    assert len(set(names)) == 3
    assert any(name.endswith("-compat-alerts") for name in names)


def test_dashboards_are_config_maps_that_the_sidecar_finds(shipped):
    objects = template({"compatibility": {"handbookDashboard": True}}, chart=shipped)
    found = {o["metadata"]["name"]: o for o in only(objects, "ConfigMap", "dashboards")}
    handbook = found.pop("hami-grafana-dashboard")
    assert json.loads(handbook["data"]["dashboard.json"])["uid"] == "vgpuscope-overview"
    assert "grafana_dashboard" not in handbook["metadata"]["labels"]
    assert len(found) == 2
    for o in found.values():
        assert o["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((name, text),) = o["data"].items()
        assert name.endswith(".json")
        assert json.loads(text)["title"] == "{{ $x }}"
    for language, number in (("en", 2), ("zh", 2), ("both", 4)):
        objects = template({"dashboards": {"language": language}}, chart=shipped)
        assert len(only(objects, "ConfigMap", "dashboards")) == number
    assert not only(template({"dashboards": {"enabled": False}}, chart=shipped), "ConfigMap", "dashboards")


def test_objects_whose_kind_the_cluster_does_not_know_are_left_out_until_it_does():
    httproute = {"analyzer": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}]}}}
    kinds = OPERATOR | {"HTTPRoute"}
    assert not kinds & {o["kind"] for o in template(httproute)}
    served = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in sorted(OPERATOR)]
    found = {o["kind"] for o in template(httproute, *served, "--api-versions=gateway.networking.k8s.io/v1/HTTPRoute")}
    assert {"ServiceMonitor", "HTTPRoute"} <= found


# --- what belongs together --------------------------------------------------------------------------------------------


def test_values_yaml_has_exactly_the_keys_of_the_model():
    values = msgspec.yaml.decode((CHART / "values.yaml").read_bytes())
    model = msgspec.convert(values, Values)
    assert keys(values) == keys(msgspec.to_builtins(model))


def keys(value: object, path: str = "") -> set[str]:
    if not isinstance(value, dict):
        return {path}
    return {path} | {key for name, part in value.items() for key in keys(part, f"{path}.{name}")}


def test_the_version_is_that_of_the_program():
    chart = msgspec.yaml.decode((CHART / "Chart.yaml").read_bytes())
    assert chart["version"] == chart["appVersion"] == __version__
    assert pod_specs(template())["agent"]["containers"][0]["image"] == f"vgpuscope:{__version__}"
    assert pod_specs(template(EVERYTHING))["agent"]["containers"][0]["image"] == f"vgpuscope@sha256:{'a' * 64}"


def test_the_plain_manifests_need_no_helm():
    for name in ("agent", "cluster", "analyzer", "extender", "plugin", "prometheus-operator"):
        text = (REPOSITORY / "deploy" / f"{name}.yaml").read_text()
        assert text.startswith("# Generated by `make gen`")
        assert "helm.sh" not in text
        assert "managed-by" not in text


@pytest.mark.parametrize("page", ["install.md", "install.zh-CN.md"])
def test_the_documentation_names_every_right_and_every_compatible_name(page):
    text = (REPOSITORY / "docs" / page).read_text()
    objects = [*template(), *template(SETS["kubelet"]), *template(SETS["takes back"]), *template(SETS["schedules"])]
    resources = {
        r
        for role in (*only(objects, "ClusterRole"), *only(objects, "Role"))
        for rule in role["rules"]
        for r in rule["resources"]
    }
    values = msgspec.yaml.decode((CHART / "values.yaml").read_bytes())
    assert not {name for name in resources if f"`{name}`" not in text}
    assert not {name for name in values["compatibility"] if f"`compatibility.{name}`" not in text}
