"""Decisions for tests."""

from vgpuscope.model.placement import DecidedGpu, Decision, NodeVerdict

MEMORY = "SCHED_INSUFFICIENT_GPU_MEMORY"


def refusal(number, *, pod="train-0", namespace="ml", at=None, nodes=2, available="4000MB", **more):
    """A refusal by so many nodes, all for the same reason."""
    verdicts = [
        NodeVerdict(
            node=f"gpu-{place}",
            code=MEMORY,
            reason="2/2 CardInsufficientMemory",
            message=f"GPU memory insufficient (requested 8000MB, available {available})",
            message_zh=f"GPU 显存不足（申请 8000MB，可用 {available}）",
            requested="8000MB",
            available=available,
        )
        for place in range(nodes)
    ]
    return decision(number, pod=pod, namespace=namespace, at=at, outcome="refused", nodes=tuple(verdicts), **more)


def assignment(number, *, pod="train-0", node="gpu-0", **more):
    """A node and one GPU for a pod."""
    gpu = DecidedGpu(uuid="GPU-0", memory=8000, cores=30)
    fits = (NodeVerdict(node=node, score=12.5),)
    return decision(number, pod=pod, outcome="assigned", node=node, devices=(gpu,), score=12.5, nodes=fits, **more)


def decision(number, *, pod="train-0", namespace="ml", at=None, outcome="refused", verb="filter", **more):
    return Decision(
        id=f"d{number}",
        at=float(number if at is None else at),
        verb=verb,
        namespace=namespace,
        pod=pod,
        pod_uid=f"uid-{namespace}-{pod}",
        outcome=outcome,
        seconds=0.001,
        **more,
    )
