"""Pages of two device plugins with the names of the catalog: the demo plays the plugins without a page."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.contract.doctorworld import serving

# A node, its GPUs, and why each is unhealthy ("": it is not).
NODES = {"hami-a": {"GPU-one": "", "GPU-two": "xid-79"}, "mig-c": {"GPU-three": ""}}


@contextmanager
def plugins() -> Iterator[tuple[str, ...]]:
    """The addresses of the plugins."""
    began = time.monotonic()
    with ExitStack() as stack:

        def served(node: str) -> str:
            return stack.enter_context(serving(lambda *_: (200, page(node, time.monotonic() - began), {})))

        yield tuple(served(node) for node in NODES)


def page(node: str, seconds: float) -> bytes:
    """One page. Every second a container gets its GPUs, in 8 ms; every fifth time, a call fails."""
    done, failed = int(seconds) + 1, int(seconds) // 5 + 1
    lines = [
        f'hami_device_plugin_allocate_duration_seconds_bucket{{le="{bound}"}} {done if float(bound) >= 0.01 else 0}'
        for bound in ("0.005", "0.01", "0.025", "inf")
    ]
    lines = [line.replace('"inf"', '"+Inf"') for line in lines]
    lines += [
        f"hami_device_plugin_allocate_duration_seconds_sum {done * 0.008}",
        f"hami_device_plugin_allocate_duration_seconds_count {done}",
        f"hami_device_plugin_device_count {len(NODES[node])}",
        f'vgpuscope_plugin_allocations_total{{node="{node}"}} {done}',
        f'vgpuscope_plugin_allocate_failures_total{{node="{node}",code="ALLOCATE_POD_UNKNOWN"}} {failed}',
        f'vgpuscope_plugin_kubelet_up{{node="{node}"}} {int(node != "mig-c")}',
        f'vgpuscope_plugin_limits_enforced{{node="{node}"}} {int(node != "mig-c")}',
    ]
    for gpu, reason in NODES[node].items():
        lines.append(f'hami_device_plugin_healthy_status{{node="{node}",device="{gpu}"}} {int(not reason)}')
        if reason:
            lines.append(f'vgpuscope_plugin_gpu_unhealthy{{node="{node}",gpu_uuid="{gpu}",reason="{reason}"}} 1')
    return ("\n".join(lines) + "\n").encode()
