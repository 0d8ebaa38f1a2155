"""`make e2e-breaks`: breaks the product in a dozen places, one after another; each time a named test must fail.

One cluster serves all breaks. A break is a change of some lines of the sources, which become one more layer of the
image, or of the chart. The release is upgraded to it, and its test must fail for the reason that the break names. All
tests pass on the unbroken product first. Names on the command line choose breaks.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.e2e.product import CHART, Product
from tests.native.build import library
from tools.cluster import archive, image, layout, machine
from tools.cluster.__main__ import down, lacking
from tools.cluster.cluster import Cluster
from tools.cluster.errors import Failed, Lacking
from tools.cluster.progress import say

SOURCES, CHARTS = "src/vgpuscope", "charts/vgpuscope"
SHARES, DISTURBANCES = "tests/e2e/test_2_shares.py", "tests/e2e/test_3_disturbances.py"
SHARE = f"{SHARES}::test_a_share_has_its_gpu_its_limits_and_its_directory"
WITHIN = "60"  # seconds for each thing that a test waits for: most breaks are seen by something that never comes


class Change(NamedTuple):
    """What stands once in a file, and what takes its place."""

    file: str
    text: str
    instead: str


class Break(NamedTuple):
    """A fault of the product, the test that must fail, and what its failure says."""

    changes: tuple[Change, ...]
    test: str
    says: str
    before: tuple[str, ...] = ()  # tests that give the fault an occasion
    last: bool = False  # nothing can follow: the test removes the product


BREAKS = {
    "wrong-mount": Break(
        (
            Change(
                f"{SOURCES}/logic/plugin/injection.py",
                "Mount(container=LOCKS, host=LOCKS)",
                'Mount(container="/tmp/locks", host=LOCKS)',
            ),
        ),
        SHARE,
        "/tmp/vgpulock",
    ),
    "wrong-environment": Break(
        (Change(f"{SOURCES}/logic/plugin/injection.py", "str(devices[0].cores)", '"100"'),),
        SHARE,
        r"\('8000m', '100'\) == \('8000m', '30'\)",
    ),
    "region-directory-of-another-pod": Break(
        (
            Change(
                f"{SOURCES}/services/plugin/allocation.py",
                "self._dirs.create(pod.uid, segment.container)",
                'self._dirs.create("another", segment.container)',
            ),
        ),
        SHARE,
        r"FileNotFoundError.*_main",
    ),
    "event-missing": Break(
        (Change(f"{SOURCES}/services/plugin/allocation.py", '"DeviceAllocated", note', '"DeviceServed", note'),),
        f"{SHARES}::test_events_of_a_pod_name_its_gpu",
        "the event of the plugin: not within",
    ),
    "a-right-dropped": Break(
        (
            Change(
                f"{CHARTS}/templates/plugin/rbac.yaml",
                "resources: [events]\n    verbs: [create]",
                "resources: [events]\n    verbs: [list]",
            ),
        ),
        "tests/e2e/test_5_rights.py::test_no_request_was_forbidden",
        r"resource='events', verb='create'",
        before=(SHARE,),
    ),
    "processes-of-another-cgroup": Break(
        (
            Change(
                f"{SOURCES}/sources/node/proc.py",
                'cgroup = _read(f"{self._root}/{pid}/',
                'cgroup = _read(f"{self._root}/1/',
            ),
        ),
        "tests/e2e/test_1_install.py::test_a_process_belongs_to_the_container_that_it_runs_in",
        "the container's memory: not within",
    ),
    "a-share-given-twice": Break(
        (
            Change(
                f"{SOURCES}/logic/scheduler/state.py",
                "        if new is not None:\n            self._count(new, 1)",
                "",
            ),
        ),
        f"{SHARES}::test_what_a_pod_gives_back_the_next_one_gets",
        r"has 40960 MiB and \d+ are given",
    ),
    "capacity-not-given-back": Break(
        (Change(f"{SOURCES}/logic/device_use.py", 'pod.place != "" and not pod.ended', 'pod.place != ""'),),
        f"{DISTURBANCES}::test_a_pod_that_fails_gives_its_gpu_back",
        "pod next ready: not within",
    ),
    "another-MIG-instance-than-the-kubelet": Break(
        (
            Change(
                f"{SOURCES}/services/plugin/allocation.py",
                "devices=self._devices(), assigned=assigned)",
                "devices=self._devices(), assigned=())",
            ),
        ),
        f"{SHARES}::test_a_mig_instance_is_given_whole",
        "assert.*MIG-",
    ),
    "no-second-registration": Break(
        (
            Change(
                f"{SOURCES}/services/plugin/registration.py",
                "kubelet is not None and kubelet != self._with:",
                "kubelet is not None and self._with is None:",
            ),
            Change(
                f"{SOURCES}/services/plugin/registration.py",
                "if kubelet is None:\n            self._with = None",
                "if 0:",
            ),
            Change(
                f"{SOURCES}/services/plugin/registration.py",
                "elif kubelet is not None and self._unfollowed",
                "elif 0 and self._unfollowed",
            ),
        ),
        f"{DISTURBANCES}::test_a_restart_of_the_kubelet_changes_nothing_for_running_pods",
        "all shares are offered: not within",
    ),
    "doctor-blind": Break(
        (
            Change(
                f"{SOURCES}/logic/doctor/scheduler.py",
                "shown = _of_plugins(facts, d.LIMITS.name)",
                "shown = _of_plugins(facts, d.LIMITS.name)[:0]",
            ),
        ),
        "tests/e2e/test_6_doctor.py::test_doctor_names_faults_of_different_services_at_the_same_time",
        "PLUGIN_LIBRARY_MISSING: not within",
    ),
    "budgets-ignored": Break(
        (
            Change(
                f"{SOURCES}/sinks/kube/writer.py",
                'await self._send("POST", f"{pod.path}/eviction", body, media=_JSON, repeatable=False, tries=1)',
                'await self._send("DELETE", pod.path, {}, media=_JSON, repeatable=False, tries=1)',
            ),
            Change(
                f"{CHARTS}/templates/analyzer/rbac.yaml",
                "resources: [pods/eviction]\n  verbs: [create]",
                "resources: [pods]\n  verbs: [delete]",
            ),
        ),
        "tests/e2e/test_4_reclaim.py::test_a_bare_pod_is_evicted_unless_its_budget_forbids_it",
        'the budget was asked: not within|pods "kept" not found',
    ),
    "no-startup-probe": Break(
        (
            Change(
                f"{CHARTS}/templates/_helpers.tpl",
                """startupProbe:
  httpGet: {path: /healthz, port: {{ .port }}, scheme: {{ $scheme }}}
  {{- include "vgpuscope.startupTime" . | nindent 2 }}
""",
                "",
            ),
        ),
        "tests/e2e/test_8_slow_node.py::test_all_services_start_once_on_a_slow_node",
        r"all services: not within|== \{0\}",
    ),
    "a-service-that-needs-more-than-restricted": Break(
        (
            Change(
                f"{CHARTS}/templates/cluster/deployment.yaml",
                "seccompProfile: {type: RuntimeDefault}",
                "seccompProfile: {type: Unconfined}",
            ),
        ),
        "tests/e2e/test_5_pod_security.py::test_agent_and_plugin_need_privileged_and_the_others_pass_restricted[restricted]",
        r"'cluster': False",
    ),
    "something-left-after-helm-uninstall": Break(
        (
            Change(
                f"{CHARTS}/templates/plugin/rbac.yaml",
                "kind: ClusterRole\nmetadata:\n",
                "kind: ClusterRole\nmetadata:\n  annotations: {helm.sh/resource-policy: keep}\n",
            ),
        ),
        "tests/e2e/test_9_uninstall.py::test_helm_uninstall_leaves_what_the_documentation_names_and_no_more",
        "stays, and docs/install.md does not say so",
        last=True,
    ),
}


def main(words: list[str]) -> int:
    if unknown := set(words) - set(BREAKS):
        print(f"there is no break {', '.join(sorted(unknown))}; there are: {', '.join(BREAKS)}", file=sys.stderr)
        return 2
    chosen = {name: BREAKS[name] for name in BREAKS if name in words or not words}
    try:
        with machine.alone(), installed() as product:
            unnoticed = not_noticed(product, chosen)
    except Lacking as e:
        return lacking(e)
    except Failed as e:
        say(str(e))
        return 1
    say(f"{len(chosen) - len(unnoticed)} of {len(chosen)} breaks were noticed")
    return 1 if unnoticed else 0


@contextlib.contextmanager
def installed() -> Iterator[Product]:
    """The product with all its services in a cluster, which ends with the block."""
    down()
    machine.check()
    cluster = Cluster()
    try:
        cluster.start(driver=library())
        product = Product(cluster).with_gpus().installed()
        product.scheduling()
        yield product
    finally:
        cluster.stop()


def not_noticed(product: Product, chosen: dict[str, Break]) -> list[str]:
    """The breaks whose tests did not fail for the reason that they name."""
    tests = dict.fromkeys(test for item in chosen.values() if not item.last for test in (*item.before, item.test))
    if tests:
        code, output = run(tests, chart=CHART)
        if code:
            print(output)
            say("the tests do not pass on the unbroken product")
            return list(chosen)
        say("all tests pass on the unbroken product")
    unnoticed = []
    for name, item in chosen.items():
        with tempfile.TemporaryDirectory(dir=layout.ROOT) as place:
            chart = made(product, item, Path(place), tag=f"broken-{name}")
            if item.before:
                run(item.before, chart=chart)
            code, output = run([item.test], chart=chart)
        if code and re.search(item.says, output):
            say(f"noticed: {name}, by {item.test}")
        else:
            print(output)
            say(f"NOT noticed: {name}, by {item.test}")
            unnoticed.append(name)
        product.tidied()
    return unnoticed


def made(product: Product, item: Break, place: Path, *, tag: str) -> str:
    """Upgrades the release to the broken product; the chart that it then has."""
    files = changed(item)
    whole = product.cluster.image
    assert whole is not None
    version = whole.name.rpartition(":")[2]
    site = f"opt/vgpuscope/lib/{image.python_name()}/site-packages"
    top, chart = place / "files", place / "chart"
    shutil.copytree(CHART, chart)
    for file, text in files.items():
        if file.startswith(SOURCES):
            target = top / site / Path(file).relative_to("src")
        else:
            target = chart / Path(file).relative_to(CHARTS)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    if top.exists():
        version = tag
        layers = [*whole.layers, archive.layer(top, place / "layer.tar")]
        product.cluster.load(archive.Image(f"{layout.PRODUCT_REPOSITORY}:{tag}", layers, whole.config))
    product.upgraded(f"image.tag={version}", chart=str(chart))
    return str(chart)


def changed(item: Break) -> dict[str, str]:
    """The files of the checkout as the break has them."""
    files: dict[str, str] = {}
    for change in item.changes:
        text = files.get(change.file) or (layout.REPOSITORY / change.file).read_text()
        if text.count(change.text) != 1:
            raise ValueError(f"{change.file} has {change.text!r} {text.count(change.text)} times, not once")
        files[change.file] = text.replace(change.text, change.instead)
    return files


def run(tests: Collection[str], *, chart: str) -> tuple[int, str]:
    """pytest on the cluster that runs: its exit code, and what it printed."""
    words = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", "--no-header", *tests]
    environ = {**os.environ, "VGPUSCOPE_E2E": "attached", "VGPUSCOPE_E2E_WITHIN": WITHIN, "VGPUSCOPE_E2E_CHART": chart}
    done = subprocess.run(words, env=environ, cwd=layout.REPOSITORY, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
