"""A store with a labelled past, for back-tests: each text is a workload, each letter an analysis every five minutes."""

from vgpuscope.model.analysis import Analysis, Evidence, GpuUse, Tenant, TenantUse, Window
from vgpuscope.store.opening import open_store

EVERY, WINDOW = 300.0, 600.0
_LOOKS = {"I": ("idle", "idle"), "B": ("in_use", "busy"), "U": ("unknown", "unknown"), "H": ("idle", "idle-held")}


def past(histories: dict[str, str], *, end: float) -> list[Analysis]:
    """The analyses; `namespace/pod` names a workload, and a blank is an analysis that is missing."""
    length = len(next(iter(histories.values())))
    first = end - EVERY * (length - 1)
    return [
        _analysis(first + EVERY * turn, {name: text[turn] for name, text in histories.items()}, turn)
        for turn in range(length)
        if all(text[turn] != " " for text in histories.values())
    ]


def _analysis(end: float, labels: dict[str, str], turn: int) -> Analysis:
    gpus = tuple(_gpu(number, name, label) for number, (name, label) in enumerate(labels.items()))
    free = tuple(GpuUse(gpu_id=f"GPU-free-{number}", hostname="free") for number in range(40))
    window = Window(begin=end - WINDOW, end=end, interval=15.0)
    return Analysis(number=turn + 1, started=end, seconds=0.1, window=window, gpus=gpus + free)


def _gpu(number: int, name: str, label: str) -> GpuUse:
    namespace, _, pod = name.partition("/")
    uses: tuple[TenantUse, ...] = ()
    if label != "-":
        verdict, use_class = _LOOKS[label]
        tenant = Tenant(namespace=namespace, pod=pod, pod_uid=f"uid-{pod}")
        uses = (TenantUse(tenant=tenant, verdict=verdict, use_class=use_class, evidence=Evidence(coverage=1.0)),)  # type: ignore[arg-type]
    return GpuUse(gpu_id=f"GPU-{number}", hostname="node", tenants=uses)


async def store_past(path: str, analyses: list[Analysis]) -> None:
    """Store them as the analyzer does."""
    store = open_store(path, keep_results=10**9, keep_hours=10**9, keep_days=10**9)
    try:
        for one in analyses:
            await store.results.save(one)
    finally:
        await store.close()
