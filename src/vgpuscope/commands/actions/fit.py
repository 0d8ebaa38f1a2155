"""`vgpuscope fit`: whether the pods of a manifest would fit, from the extender's current allocations."""

import asyncio
import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import yaml
from msgspec.structs import replace
from rich.console import Group

from vgpuscope.commands.actions.access import TOKEN_SOURCE, token
from vgpuscope.commands.actions.language import language_of
from vgpuscope.formats.kube.manifests import MOST_REPLICAS, WantedPod, wanted_pods
from vgpuscope.formats.kube.placement_request import placement_request
from vgpuscope.model.decision_answers import FitAnswer
from vgpuscope.model.errors import BodyInvalid, ConfigInvalid, RequestInvalid, SourceDown
from vgpuscope.model.wording import sentences
from vgpuscope.model.words import Language
from vgpuscope.runtime import yamlfile
from vgpuscope.sources.clients.extender import FIT
from vgpuscope.sources.clients.served_api import ServedApi
from vgpuscope.terminal.printing import print_drawn, print_json
from vgpuscope.terminal.screen import speak_plainly
from vgpuscope.views.languages import one_of
from vgpuscope.views.scheduler.fitting import fit_view
from vgpuscope.views.scheduler.words import word

_TIMEOUT = 60.0  # seconds; the search for pods to end or move can take some
_MOST_PODS = 100  # of one file
_NO_FILE = "Check the path of -f; `-f -` reads standard input, for example of kubectl get -o yaml."


def main(
    path: str,
    *,
    url: str,
    replicas: int | None,
    namespace: str,
    language: str | None,
    as_json: bool,
    wide: bool,
) -> int:
    """Print the answer for each pod of the file; 0 if all fit, 1 if one does not."""
    speak_plainly()
    if replicas is not None and not 1 <= replicas <= MOST_REPLICAS:
        raise ConfigInvalid(
            f"--replicas is {replicas}, not a number from 1 to {MOST_REPLICAS}", hint="For example --replicas 4."
        )
    spoken = language_of(language, os.environ)
    pods = read_pods(path, namespace, spoken)
    found = asyncio.run(_ask(url, pods, replicas))
    if as_json:
        print_json(found[0] if len(found) == 1 else found)
    else:
        for place, (pod, one) in enumerate(zip(pods, found, strict=True)):
            if place:
                print()
            title = f"{pod.kind} {one.namespace}/{one.name or pod.name or 'pod'}" if pod.kind != "Pod" else ""
            print_drawn(partial(_drawn, one, title, spoken), wide=wide)
    return 0 if all(one.fitting >= one.replicas for one in found) else 1


def _drawn(found: FitAnswer, title: str, language: Language, width: int | None) -> Group:
    return fit_view(found, width, title=title, language=language)


def read_pods(path: str, namespace: str, language: Language) -> list[WantedPod]:
    """The pods of a file, or of standard input; ConfigInvalid says what is wrong with it."""
    name = "standard input" if path == "-" else path
    content = sys.stdin.buffer.read(yamlfile.LIMIT + 1) if path == "-" else yamlfile.read(path, hint=_NO_FILE)
    if len(content) > yamlfile.LIMIT:
        raise ConfigInvalid(f"{name}: larger than {yamlfile.LIMIT} bytes", hint=word("give_pods", language))
    try:
        pods = [pod for document in _documents(content, name, language) for pod in wanted_pods(document)]
    except BodyInvalid as e:
        raise ConfigInvalid(f"{name}: {e}", hint=word("give_pods", language)) from e
    if not pods:
        raise ConfigInvalid(word("no_template", language, file=name), hint=word("give_pods", language))
    if len(pods) > _MOST_PODS:
        raise ConfigInvalid(f"{name}: {len(pods)} pods, at most {_MOST_PODS} are possible", hint="Split the file.")
    for pod in pods:
        _check(pod, language)
    return [_within(pod, namespace) for pod in pods]


def _check(pod: WantedPod, language: Language) -> None:
    """Check the request here: the extender says what is wrong with it in English only."""
    try:
        placement_request(msgspec.json.encode(pod.pod))
    except (RecursionError, TypeError, ValueError) as e:
        raise ConfigInvalid(
            word("not_json", language, pod=pod.name or pod.kind), hint=word("give_pods", language)
        ) from e
    except RequestInvalid as e:
        said = one_of((str(e), e.chinese or str(e)), language)
        raise ConfigInvalid(f"{e.code}: {said}", hint=word("correct", language)) from e


def _documents(content: bytes, name: str, language: Language) -> Iterator[Any]:
    """The documents of a YAML file; JSON is YAML, too."""
    hint = word("check_file", language, file="-" if name == "standard input" else name)
    try:
        yield from (one for one in yaml.safe_load_all(content) if one is not None)
    except yaml.MarkedYAMLError as e:
        line = f":{e.problem_mark.line + 1}" if e.problem_mark else ""
        raise ConfigInvalid(f"{name}{line}: {e.problem or 'not YAML'}", hint=hint) from e
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise ConfigInvalid(f"{name}: not YAML ({type(e).__name__})", hint=hint) from e


def _within(pod: WantedPod, namespace: str) -> WantedPod:
    meta = pod.pod["metadata"]
    if not namespace or meta.get("namespace"):
        return pod
    return replace(pod, pod={**pod.pod, "metadata": {**meta, "namespace": namespace}})


async def _ask(url: str, pods: list[WantedPod], replicas: int | None) -> list[FitAnswer]:
    async with ServedApi(FIT, url, content=FitAnswer, timeout=_TIMEOUT, token=token(), source=TOKEN_SOURCE) as api:
        try:
            return [await _one(api, pod, replicas) for pod in pods]
        except SourceDown as e:
            otherwise = "Without an extender, `vgpuscope nodes` prints the largest request that fits on each node."
            raise SourceDown(str(e), hint=sentences(e.advice, otherwise)) from e
        except (BodyInvalid, RequestInvalid) as e:
            raise ConfigInvalid(f"{e.code}: {e}", hint=e.advice) from e


async def _one(api: ServedApi[FitAnswer], pod: WantedPod, replicas: int | None) -> FitAnswer:
    wanted = replicas if replicas is not None else pod.replicas
    body = {"pod": pod.pod, "replicas": max(1, wanted if wanted is not None else 1)}
    return await api.ask("POST", FIT.path, FitAnswer, body)
