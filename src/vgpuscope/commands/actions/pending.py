"""`vgpuscope pending`: the pods that wait for GPUs, from the cluster exporter, as a table or one pod in detail."""

import asyncio
import os

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.commands.actions.pod_words import pod_and_url
from vgpuscope.commands.arguments import Form
from vgpuscope.model.errors import ConfigInvalid, PodUnknown
from vgpuscope.model.pending import PendingList, PendingPod
from vgpuscope.model.quantity import Seconds
from vgpuscope.model.service import CLUSTER_PORT
from vgpuscope.model.wording import sentences, similar
from vgpuscope.model.words import Language
from vgpuscope.sources.clients.cluster import PendingApi
from vgpuscope.terminal.printing import print_csv, print_drawn, print_json, repeated, until_listed
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.cluster.pending.table import pending_table, pod_view
from vgpuscope.views.cluster.pending.words import word
from vgpuscope.views.fleet.selection import as_csv

_SEARCHED = 2000  # pods, compared with a name that was not found


def main(
    words: list[str],
    *,
    url: str | None,
    namespace: str | None,
    everything: bool,
    language: str | None,
    form: Form,
    wide: bool,
    every: Seconds | None,
) -> int:
    """Print the pods that wait, or one pod; the exit code. PodUnknown if that pod never waited."""
    speak_plainly()
    pod, url = chosen(words, url)
    if pod and namespace:
        raise ConfigInvalid(
            f"--namespace {namespace} and the pod {pod}: the pod's name has its namespace", hint="Give one of them."
        )
    spoken = language_of(language, os.environ)

    def ask() -> PendingList:
        found = asyncio.run(_ask(url, pod, namespace=namespace or "", everything=everything))
        if pod and not found.pending:
            known = asyncio.run(_ask(url, "", everything=True)).pending
            near = similar(pod, [f"{one.namespace}/{one.pod}" for one in known[:_SEARCHED]])
            raise PodUnknown(
                word("unknown_pod", spoken, pod=pod),
                hint=sentences(word("meant", spoken, name=near) if near else "", word("list_all", spoken)),
            )
        return found

    def show(found: PendingList) -> None:
        if form == "json":
            print_json(found)
        elif form == "csv":
            print_csv(as_csv(found.pending, PendingPod.__struct_fields__))
        elif pod:
            _show_one(found, spoken, wide=wide)
        elif found.pending:
            print_drawn(lambda width: pending_table(found, width, outcomes=everything, language=spoken), wide=wide)
        else:
            print(word("nobody_all" if everything else "nobody", spoken))

    repeated(ask, show, every=every)
    return 0


def chosen(words: list[str], url: str | None = None) -> tuple[str, str]:
    """The pod and the address among the words."""
    return pod_and_url(words, url, command="pending", port=CLUSTER_PORT)


def _show_one(found: PendingList, language: Language, *, wide: bool) -> None:
    """The pod that waits, or the one that waited last; of earlier ones of the same name only the number."""
    print_drawn(lambda _: pod_view(found.pending[0], found, language), wide=wide)
    earlier = len(found.pending) - 1
    if earlier:
        print("\n" + word("one_namesake" if earlier == 1 else "some_namesakes", language, n=earlier))


async def _ask(url: str, pod: str, *, namespace: str = "", everything: bool) -> PendingList:
    of, _, name = pod.partition("/")
    async with PendingApi(url, token=token(), source=TOKEN_SOURCE) as api:
        await until_listed(api.missing, url=api.url)
        return await api.pending(namespace=of or namespace, pod=name, everything=everything or bool(pod))
