"""`vgpuscope pending`: the pods that wait for GPUs, from the cluster exporter, as a table or one pod in detail."""

import asyncio

from vgpuscope.commands.clients.access import token
from vgpuscope.model.errors import ConfigInvalid, PodUnknown
from vgpuscope.model.pending import PendingList
from vgpuscope.model.service import CLUSTER_PORT, default_url, local
from vgpuscope.model.wording import nearest, sentences
from vgpuscope.sources.clients.cluster import PendingApi
from vgpuscope.terminal.printing import print_drawn, print_json, until_listed
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.cluster.pending import pending_table, pod_view

_SEARCHED = 2000  # pods, compared with a name that was not found


def main(words: list[str], *, everything: bool, as_json: bool) -> int:
    """Print the pods that wait, or one pod; the exit code. PodUnknown if that pod never waited."""
    speak_plainly()
    pod, url = chosen(words)
    found = asyncio.run(_ask(url, pod, everything=everything))
    if pod and not found.pending:
        known = asyncio.run(_ask(url, "", everything=True)).pending
        near = nearest(pod, [f"{one.namespace}/{one.pod}" for one in known[:_SEARCHED]])
        raise PodUnknown(
            f"pod {pod} does not wait for GPUs, and did not in the last day",
            hint=sentences(near, PodUnknown.hint),
        )
    if as_json:
        print_json(found)
    elif pod:
        _show_one(found)
    elif found.pending:
        print_drawn(lambda width: pending_table(found, width, outcomes=everything))
    else:
        print("No pod waits for GPUs" + (", or did in the last day." if everything else "."))
    return 0


def chosen(words: list[str]) -> tuple[str, str]:
    """The pod and the address among the words: names of namespaces and pods have no colon."""
    pods = [word for word in words if "/" in word and ":" not in word]
    urls = [word for word in words if word not in pods]
    wrong = [word for word in pods if word.count("/") != 1 or not all(word.split("/"))]
    wrong += [word for word in urls if not (":" in word or "." in word or word == "localhost")]
    if wrong or len(pods) > 1 or len(urls) > 1:
        reason = (
            f"{wrong[0]!r} is neither NAMESPACE/POD nor an address" if wrong else "more than one pod or one address"
        )
        raise ConfigInvalid(reason, hint=f"For example: `vgpuscope pending ml/train-0 {local(CLUSTER_PORT)}`.")
    return pods[0] if pods else "", urls[0] if urls else default_url(CLUSTER_PORT)


def _show_one(found: PendingList) -> None:
    """The pod that waits, or the one that waited last; of earlier ones of the same name only the number."""
    print_drawn(lambda _: pod_view(found.pending[0], found))
    earlier = len(found.pending) - 1
    if earlier:
        print(f"\n{_count(earlier)} of the same name waited earlier; --json prints all.")


def _count(number: int) -> str:
    return f"{number} pod" if number == 1 else f"{number} pods"


async def _ask(url: str, pod: str, *, everything: bool) -> PendingList:
    namespace, _, name = pod.partition("/")
    async with PendingApi(url, token=token()) as api:
        await until_listed(api.missing, url=api.url)
        return await api.pending(namespace=namespace, pod=name, everything=everything or bool(pod))
