"""The paths that kube-scheduler and the API server call: filter, prioritize, bind and the webhook.

A caller is checked before its body is read. An answer always has the shape that the caller expects, also when it is an
error: kube-scheduler shows the text of `Error`, and retries. It reads no body but that of a 200, so a filter or binding
that fails is a 200, too. A body that cannot be read is none that kube-scheduler sends: 400 or 413.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from vgpuscope.formats.kube.admission import AdmissionReview, decode_review, encode_answer
from vgpuscope.formats.kube.extender import (
    BindingArgs,
    ExtenderArgs,
    binding_result,
    decode_args,
    decode_binding_args,
    filter_error,
)
from vgpuscope.http.error_body import error_body
from vgpuscope.http.peers import Peers
from vgpuscope.model.admission import AdmissionResult, SubmittedPod
from vgpuscope.model.errors import BodyInvalid, BodyTooLarge, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.services.extender.counters import ExtenderCounters, Verb
from vgpuscope.services.extender.deciding import ExtenderAnswer

LARGE: Final = 64 * 2**20  # bytes: 1,000 whole nodes have 3 MB
SMALL: Final = 4 * 2**20  # bytes: the API server accepts objects of 1.5 MiB, and a review can hold two
_ARGS = "kube-scheduler calls this path, with ExtenderArgs of k8s.io/kube-scheduler/extender/v1."
_REVIEW = "The API server calls this path, with an AdmissionReview of admission.k8s.io/v1."
_AT_ONCE = 4  # large bodies in memory
_JSON = "application/json"
PATHS: Final = {"/filter": "filter", "/prioritize": "prioritize", "/score": "prioritize", "/bind": "bind"}
WEBHOOK: Final = "/webhook"
LIMITS: Final = {"/filter": LARGE, "/prioritize": LARGE, "/score": LARGE, "/bind": SMALL, WEBHOOK: SMALL}


class ExtenderHandler(Protocol):
    """What the paths lead to."""

    async def filter(self, args: ExtenderArgs) -> ExtenderAnswer: ...
    async def prioritize(self, args: ExtenderArgs) -> ExtenderAnswer: ...
    async def bind(self, args: BindingArgs) -> ExtenderAnswer: ...
    def admit(self, pod: SubmittedPod) -> AdmissionResult: ...
    def may_assign(self, user: str) -> bool: ...


class ExtenderPaths:
    """The routes of the protocol."""

    def __init__(
        self,
        of: ExtenderHandler,
        *,
        peers: Peers,
        tally: ExtenderCounters,
        failed: Callable[[ScopeError], None],
        clock: Callable[[], Seconds] = time.monotonic,
    ) -> None:
        self._of, self._peers, self._tally, self._failed, self._clock = of, peers, tally, failed, clock
        self._large = asyncio.Semaphore(_AT_ONCE)

    def routes(self) -> list[Route]:
        verbs = {"filter": self._filter, "prioritize": self._prioritize, "bind": self._bind}
        own = [Route(path, verbs[verb], methods=["POST"]) for path, verb in PATHS.items()]
        return [*own, Route(WEBHOOK, self._review, methods=["POST"])]

    async def _filter(self, request: Request) -> Response:
        async def answer(body: bytes) -> ExtenderAnswer:
            return await self._of.filter(decode_args(body))

        return await self._answered("filter", request, answer, lambda e: filter_error(_said(e)))

    async def _prioritize(self, request: Request) -> Response:
        async def answer(body: bytes) -> ExtenderAnswer:
            return await self._of.prioritize(decode_args(body))

        return await self._answered("prioritize", request, answer, lambda e: _error_body(e, _ARGS))

    async def _bind(self, request: Request) -> Response:
        async def answer(body: bytes) -> ExtenderAnswer:
            return await self._of.bind(decode_binding_args(body))

        return await self._answered("bind", request, answer, lambda e: binding_result(_said(e)))

    async def _answered(
        self,
        verb: Verb,
        request: Request,
        answer: Callable[[bytes], Awaitable[ExtenderAnswer]],
        in_shape: Callable[[ScopeError], bytes],
    ) -> Response:
        """Check the caller, read the body, and count the answer: one observation for each request."""
        self._peers.check(request)
        began = self._clock()
        try:
            async with self._large if verb != "bind" else nullcontext():
                found = await answer(await _body(request, LIMITS[request.url.path]))
        except ScopeError as e:
            self._failed(e)
            found = ExtenderAnswer(in_shape(e), "error", e)
        except BaseException:
            self._tally.answered(verb, "error", self._clock() - began)
            raise
        self._tally.answered(verb, found.outcome, self._clock() - began, ranked=found.ranked)
        return Response(found.body, _status(found.error), media_type=_JSON)

    async def _review(self, request: Request) -> Response:
        """The webhook is open to all: it only reads, and the API server has no credentials for it."""
        began = self._clock()
        try:
            review = decode_review(await _body(request, SMALL))
        except ScopeError as e:
            self._failed(e)
            self._tally.answered("webhook", "error", self._clock() - began)
            status = 400 if isinstance(e, BodyInvalid) else e.status
            return Response(_error_body(e, _REVIEW), status, media_type=_JSON)
        answer = self._judged(review)
        self._tally.answered("webhook", "refused" if answer.code else "ok", self._clock() - began)
        if answer.code:
            self._tally.refused("webhook", answer.code)
        return Response(encode_answer(review.uid, answer), media_type=_JSON)

    def _judged(self, review: AdmissionReview) -> AdmissionResult:
        if review.assigned and not self._of.may_assign(review.user):
            message = f"{review.user} may not write {review.assigned[0]}: only the scheduler says who has a GPU"
            return AdmissionResult(code="SCHED_ADMISSION_DENIED", message=message)
        return AdmissionResult() if review.pod is None else self._of.admit(review.pod)


async def _body(request: Request, most: int) -> bytes:
    """The whole body; BodyTooLarge if it has more bytes."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > most:
            raise BodyTooLarge(f"the request is larger than {most // 2**20} MiB")
    return bytes(read)


def _status(error: ScopeError | None) -> int:
    """200 for everything that was understood; but /prioritize has no other way to say that there are no scores."""
    if error is None:
        return 200
    return 400 if isinstance(error, BodyInvalid) else error.status


def _said(error: ScopeError) -> str:
    return f"{error.code}: {error}"


def _error_body(error: ScopeError, format_of: str) -> bytes:
    """`format_of`: where the format of the path's body is described; no document of ours has it."""
    return error_body(error.code, str(error), format_of if isinstance(error, BodyInvalid) else error.advice)
