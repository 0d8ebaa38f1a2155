"""Parts of expressions that hold whatever scrapes the exporters.

A series that Prometheus scraped has more labels than its exporter gave it: job, instance and, with an operator, the
exporter's own pod and namespace. Without honor_labels, our labels of the same names are called exported_*. Two
replicas, or two jobs for one exporter, give each series twice. `per` removes all of this.
"""

from textwrap import indent

GPU = "cluster, node, gpu_uuid"
CONTAINER = "cluster, node, namespace, pod, container, gpu_uuid"
VGPU = f"{CONTAINER}, vdevice_index"
TENANT = "cluster, hostname, gpu_id, mig, namespace, pod, owner"
OF_POD = ("namespace", "pod", "container")


def per(labels: str, series: str, *shadowed: str) -> str:
    """One value for each combination of these labels: the largest.

    `shadowed` are labels of ours that the scrape target may have as well.
    """
    return f"max by ({labels}) (\n{indent(_unshadowed(series, shadowed), '  ')}\n)"


def _unshadowed(series: str, labels: tuple[str, ...]) -> str:
    """The series with our own labels in place of those of the scrape target."""
    if not labels:
        return series
    steps = [f'  "{label}", "$1", "exported_{label}", "(.+)")' for label in labels]
    return "label_replace(" * len(labels) + f"\n  {series},\n" + ",\n".join(steps)


def share(part: str, whole: str) -> str:
    """The part divided by the whole; nothing where the whole is 0, which would be +Inf or NaN."""
    return f"{part}\n/\n({whole} > 0)"


def appeared(labels: str, series: str, window: str) -> str:
    """How often a counter was raised in the window, its first appearance included.

    A counter that begins to exist with its first event has no earlier sample, so increase() of it is 0. A GPU that is
    lost may take its series with it, so the last value in the window counts.
    """
    return "\n".join(
        (
            f"max by ({labels}) (\n  increase({series}[{window}])\n) > 0",
            "or",
            f"max by ({labels}) (\n  last_over_time({series}[{window}])\n  unless\n  {series} offset {window}\n) > 0",
        )
    )
