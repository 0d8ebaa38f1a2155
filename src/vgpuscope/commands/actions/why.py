"""`vgpuscope why`: the decisions of the extender about one pod."""

import asyncio
import os
import time
from urllib.parse import urlencode

from rich.console import Group, RenderableType

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.commands.actions.pod_words import pod_and_url
from vgpuscope.model.decision_answers import DecisionBody, FitAnswer
from vgpuscope.model.errors import ConfigInvalid, PodUnknown, ScopeError, SourceDown
from vgpuscope.model.service import EXTENDER_PORT
from vgpuscope.model.wording import sentences, similar
from vgpuscope.model.words import Language
from vgpuscope.sources.clients.extender import EXTENDER, FIT
from vgpuscope.sources.clients.served_api import ServedApi
from vgpuscope.terminal.printing import print_drawn, print_json
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.pairs import line
from vgpuscope.views.scheduler.fitting import help_parts
from vgpuscope.views.scheduler.why import why_view
from vgpuscope.views.scheduler.words import word

_TIMEOUT = 60.0  # seconds; the search for pods to end or move can take some
_MOST = 100  # decisions about one pod
_SEARCHED = 1000  # decisions whose pods are compared with a name that was not found


def main(words: list[str], *, url: str | None, language: str | None, as_json: bool, wide: bool) -> int:
    """Print the decisions about one pod; the exit code. PodUnknown if there are none."""
    speak_plainly()
    pod, url = pod_and_url(words, url, command="why", port=EXTENDER_PORT)
    if not pod:
        raise ConfigInvalid("no pod is given", hint="For example: `vgpuscope why ml/train-0`.")
    spoken = language_of(language, os.environ)
    decisions, fits = asyncio.run(_ask(url, pod, spoken))
    if as_json:
        print_json(decisions)
    else:
        now, more = time.time(), _help(fits, spoken)
        print_drawn(lambda width: Group(why_view(decisions, now, width, *more, language=spoken)), wide=wide)
    return 0


def _help(fits: FitAnswer | None, language: Language) -> list[RenderableType]:
    """What would make the pod fit, or that it fits by now."""
    if fits is None:
        return []
    if fits.fitting:
        return ["", line(word("fits_now", language, node=fits.places[0].node))]
    return ["", *help_parts(fits, language)]


async def _ask(url: str, pod: str, language: Language) -> tuple[list[DecisionBody], FitAnswer | None]:
    namespace, _, name = pod.partition("/")
    otherwise = f"Without an extender, `vgpuscope pending {pod}` prints what schedulers report."
    async with ServedApi(
        EXTENDER, url, content=list[DecisionBody], timeout=_TIMEOUT, token=token(), source=TOKEN_SOURCE
    ) as api:
        try:
            found = await _decisions(api, namespace=namespace, pod=name, limit=_MOST)
            if found:
                return found, await _fits(api, found[0])
            known = await _decisions(api, limit=_SEARCHED, nodes="false")
        except SourceDown as e:
            raise SourceDown(str(e), hint=sentences(e.advice, otherwise)) from e
    near = similar(pod, [f"{one.namespace}/{one.pod}" for one in known])
    raise PodUnknown(
        word("unknown", language, url=api.url, pod=pod),
        hint=sentences(word("meant", language, name=near) if near else "", word("ask_pending", language, pod=pod)),
    )


async def _fits(api: ServedApi[list[DecisionBody]], last: DecisionBody) -> FitAnswer | None:
    """What would make a pod fit that was refused; None if the extender cannot say it now."""
    if last.outcome != "refused":
        return None
    try:
        asked = urlencode({"namespace": last.namespace, "pod": last.pod})
        return await api.ask("GET", f"{FIT.path}?{asked}", FitAnswer)
    except ScopeError:
        return None


async def _decisions(api: ServedApi[list[DecisionBody]], **asked: object) -> list[DecisionBody]:
    return await api.ask("GET", f"{EXTENDER.path}?{urlencode(asked)}", list[DecisionBody])
