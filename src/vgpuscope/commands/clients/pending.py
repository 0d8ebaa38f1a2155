"""`vgpuscope pending`: ask the cluster exporter which pods wait for devices and why, and print a table or one pod."""

import asyncio
import os

from vgpuscope.model.errors import ConfigInvalid, PodUnknown
from vgpuscope.model.pending import PendingList
from vgpuscope.model.wording import nearest, sentences
from vgpuscope.sources.clients.cluster import PendingApi
from vgpuscope.terminal.printing import print_drawn, print_json, until_listed
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.cluster.pending import pending_table, pod_view

_SEARCHED = 2000  # pods, for one whose name is like the one that was typed
DEFAULT_URL = "http://127.0.0.1:31993"


def main(words: list[str], *, everything: bool, as_json: bool) -> int:
    """Print the pods that wait, or one pod; the exit code. ScopeError when there is nothing to print."""
    speak_plainly()
    pod, url = chosen(words)
    found = asyncio.run(_ask(url, pod, everything=everything))
    if pod and not found.pending:
        known = asyncio.run(_ask(url, "", everything=True)).pending
        near = nearest(pod, [f"{one.namespace}/{one.pod}" for one in known[:_SEARCHED]])
        raise PodUnknown(
            f"{pod} does not wait for devices, and is not remembered to have waited",
            hint=sentences(near, PodUnknown.hint),
        )
    if as_json:
        print_json(found)
    elif pod:
        _show_one(found)
    elif found.pending:
        print_drawn(lambda width: pending_table(found, width, outcomes=everything))
    else:
        print("no pod waits for devices" + (", or did in what is remembered" if everything else ""))
    return 0


def chosen(words: list[str]) -> tuple[str, str]:
    """The pod and the address among what was typed: neither a namespace nor a pod has a colon in its name."""
    pods = [word for word in words if "/" in word and ":" not in word]
    urls = [word for word in words if word not in pods]
    wrong = [word for word in pods if word.count("/") != 1 or not all(word.split("/"))]
    wrong += [word for word in urls if not (":" in word or "." in word or word == "localhost")]
    if wrong or len(pods) > 1 or len(urls) > 1:
        said = f"{wrong[0]!r} is neither NAMESPACE/POD nor an address" if wrong else "one pod and one address at most"
        raise ConfigInvalid(said, hint="For example: `vgpuscope pending ml/train-0 127.0.0.1:31993`.")
    return pods[0] if pods else "", urls[0] if urls else DEFAULT_URL


def _show_one(found: PendingList) -> None:
    """The pod that waits, or the one that did so last; of others by the same name only how many there are."""
    print_drawn(lambda _: pod_view(found.pending[0], found))
    earlier = len(found.pending) - 1
    if earlier:
        print(f"\n{earlier} earlier by the same name; --json has them too")


async def _ask(url: str, pod: str, *, everything: bool) -> PendingList:
    namespace, _, name = pod.partition("/")
    async with PendingApi(url, token=os.environ.get("VGPUSCOPE_TOKEN") or None) as api:
        await until_listed(api.missing, url=api.url)
        return await api.pending(namespace=namespace, pod=name, everything=everything or bool(pod))
