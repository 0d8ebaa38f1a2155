"""`vgpuscope pending`: the pods that wait for GPUs, from the cluster exporter, as a table or one pod in detail."""

import asyncio
import os

from vgpuscope.commands.actions.access import token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.commands.actions.pod_words import pod_and_url
from vgpuscope.model.errors import PodUnknown
from vgpuscope.model.pending import PendingList
from vgpuscope.model.service import CLUSTER_PORT
from vgpuscope.model.wording import nearest, sentences
from vgpuscope.model.words import Language
from vgpuscope.sources.clients.cluster import PendingApi
from vgpuscope.terminal.printing import print_drawn, print_json, until_listed
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.cluster.pending.table import pending_table, pod_view
from vgpuscope.views.cluster.pending.words import word

_SEARCHED = 2000  # pods, compared with a name that was not found


def main(words: list[str], *, everything: bool, language: str | None, as_json: bool) -> int:
    """Print the pods that wait, or one pod; the exit code. PodUnknown if that pod never waited."""
    speak_plainly()
    pod, url = chosen(words)
    spoken = language_of(language, os.environ)
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
        _show_one(found, spoken)
    elif found.pending:
        print_drawn(lambda width: pending_table(found, width, outcomes=everything, language=spoken))
    else:
        print(word("nobody_all" if everything else "nobody", spoken))
    return 0


def chosen(words: list[str]) -> tuple[str, str]:
    """The pod and the address among the words."""
    return pod_and_url(words, command="pending", port=CLUSTER_PORT)


def _show_one(found: PendingList, language: Language) -> None:
    """The pod that waits, or the one that waited last; of earlier ones of the same name only the number."""
    print_drawn(lambda _: pod_view(found.pending[0], found, language))
    earlier = len(found.pending) - 1
    if earlier:
        print("\n" + word("one_namesake" if earlier == 1 else "some_namesakes", language, n=earlier))


async def _ask(url: str, pod: str, *, everything: bool) -> PendingList:
    namespace, _, name = pod.partition("/")
    async with PendingApi(url, token=token()) as api:
        await until_listed(api.missing, url=api.url)
        return await api.pending(namespace=namespace, pod=name, everything=everything or bool(pod))
