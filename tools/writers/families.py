"""What the families of metrics are, for the documentation."""

FAMILY_HELP: dict[str, str] = {
    "native": "vgpuscope's own names, in base units",
    "hami": "the names of HAMi v2.10, with its labels and scales",
    "hami-legacy": "HAMi's names before v2.9; where releases differ, the union of their labels",
    "handbook": "the names of the HAMi handbook's monitoring chapter",
    "pod": "the names of k8s-vgpu-monitor, with namespace added",
    "dcgm": "the names and labels of dcgm-exporter, one series for each GPU or MIG instance; off by default: beside a "
    "dcgm-exporter all would appear twice",
    "dcgm-pods": "the parts of pods that share a GPU or MIG instance, under dcgm-exporter's names; off by default, "
    "also with `all`: beside `dcgm`, a sum over one of these names counts a GPU and its parts",
    "gpu-oour": "the names of gpu-oour, whose API the analyzer serves",
}
