"""The PromQL that shows, unless configured otherwise, whether an inference server gets requests."""

from typing import Final

from vgpuscope.model.reclaim import ActivityQuery


def _requests(counter: str) -> str:
    """Requests of the last hour. A counter that is younger than that counts as a whole: increase() misses its start."""
    born = f"sum by (namespace, pod) ({counter} unless {counter} offset 1h) > 0"
    return f"({born}) or sum by (namespace, pod) (increase({counter}[1h]))"


INFERENCE_SERVERS: Final = (
    ActivityQuery(name="vllm", query=_requests("vllm:request_success_total")),
    ActivityQuery(name="triton", query=_requests("nv_inference_request_success")),
    ActivityQuery(name="kserve", query=_requests("request_predict_seconds_count")),
    ActivityQuery(name="tgi", query=_requests("tgi_request_count")),
)
