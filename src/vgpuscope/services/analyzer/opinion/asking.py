"""Asks one language model: the client, retries, the budget of a day, pauses after failures, and the counters."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from vgpuscope.config.ai import AiConfig
from vgpuscope.logic.opinion.answers import answer_of, opinion_of
from vgpuscope.logic.opinion.budget import RequestBudget
from vgpuscope.logic.opinion.prompt import question
from vgpuscope.model.errors import (
    AiAnswerInvalid,
    AiAnswerTooLarge,
    AiBudgetSpent,
    AiFailed,
    AiRateLimited,
    AiRedirected,
    AiRejected,
    AiTimeout,
    AiUnreachable,
    ConfigInvalid,
)
from vgpuscope.model.histogram import Histogram
from vgpuscope.model.opinion import (
    Answer,
    ModelReply,
    Opinion,
    Prompt,
    Provider,
    RequestOutcome,
    TenantEvidence,
    TokenKind,
)
from vgpuscope.model.quantity import Seconds, UnixTime
from vgpuscope.runtime.redaction import redacted
from vgpuscope.sources.opinion.address import address_of
from vgpuscope.sources.opinion.client import ModelAccess, ModelClient
from vgpuscope.sources.opinion.models import open_model
from vgpuscope.version import __version__

BUCKETS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_QUIET: tuple[Seconds, Seconds] = (30.0, 600.0)  # after a failure of the provider, doubled each time; the longest
_LONGEST_PAUSE: Seconds = 60.0  # between two requests for one question; a longer one is a pause for all questions
_KEY_MOST = 4096  # characters of a key
_MILLION = 1e6
_OUTCOMES: tuple[tuple[type[AiFailed], RequestOutcome], ...] = (
    (AiAnswerInvalid, "invalid"),
    (AiAnswerTooLarge, "too_large"),
    (AiTimeout, "timeout"),
    (AiUnreachable, "unreachable"),
    (AiRateLimited, "rate_limited"),
    (AiRejected, "rejected"),
    (AiRedirected, "redirected"),
    (AiFailed, "failed"),
)

OpenModel = Callable[[ModelAccess, Callable[[str], str]], ModelClient]


class AiCounts(Struct):
    """Counters of requests to the model."""

    requests: Counter[tuple[Provider, RequestOutcome]] = msgspec.field(default_factory=Counter)
    tokens: Counter[TokenKind] = msgspec.field(default_factory=Counter)
    seconds: Histogram = Histogram.empty(BUCKETS)
    cost: float | None = None  # None: no price was configured when tokens were counted


class _Model(NamedTuple):
    """The client in use, and what it was made for."""

    made_for: object
    access: ModelAccess
    client: ModelClient


def _open(access: ModelAccess, hide: Callable[[str], str]) -> ModelClient:
    return open_model(access, hide=hide)


class Asker:
    """One model at a time, as the settings say."""

    def __init__(
        self,
        *,
        opened: OpenModel = _open,
        clock: Callable[[], UnixTime] = time.time,
        sleep: Callable[[Seconds], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`opened` makes the client of a model; it is called on a thread."""
        self._opened, self._clock, self._sleep = opened, clock, sleep
        self._model: _Model | None = None
        self._failures = 0  # of the provider, in a row
        self._quiet: tuple[UnixTime, str] = (0.0, "")  # until when it is left alone, and the code why
        self.budget = RequestBudget()
        self.counts = AiCounts()

    async def begin(self, ai: AiConfig) -> None:
        """Make the client for these settings, if they or the key in the file changed. May raise ScopeError."""
        key = ai.api_key or await asyncio.to_thread(_key_in, ai.api_key_file)
        made_for = (ai.provider, ai.api_url, ai.model, key, ai.api_version, ai.max_tokens, ai.timeout)
        if self._model is not None and self._model.made_for == made_for:
            return
        await self.close()
        access = ModelAccess(
            address=address_of(ai.provider, ai.api_url, model=ai.model),
            model=ai.model,
            key=key,
            api_version=ai.api_version,
            max_tokens=ai.max_tokens,
            timeout=ai.timeout,
            agent=f"vgpuscope/{__version__}",
        )
        client = await asyncio.to_thread(self._opened, access, _hider(key))
        self._model = _Model(made_for, access, client)
        self._failures, self._quiet = 0, (0.0, "")  # what failed with other settings may work with these

    async def close(self) -> None:
        if self._model is not None:
            before, self._model = self._model, None
            await before.client.close()

    def held_back(self, ai: AiConfig) -> tuple[str, UnixTime] | None:
        """Why no question can be asked now, as a code, and until when; None: it can."""
        now = self._clock()
        until, code = self._quiet
        if now < until:
            return code, until
        if self.budget.left(ai.max_per_day, now) <= 0:
            return AiBudgetSpent.code, self.budget.free_at(now)
        return None

    async def ask(self, found: TenantEvidence, ai: AiConfig) -> Opinion:
        """The opinion on one tenant; AiFailed if no request brought one. `begin` was called before."""
        assert self._model is not None
        model, hide = self._model, _hider(self._model.access.key)
        asked = question(found, names=ai.send_names, redact=hide)
        reply, answer = await self._patiently(asked, model, ai)
        self._failures = 0
        opinion = opinion_of(answer, key=found.key, at=self._clock(), model=hide(reply.model[:128]) or ai.model)
        return replace(
            opinion,
            reason=hide(opinion.reason),
            recommendation=hide(opinion.recommendation),
            reason_zh=hide(opinion.reason_zh),
            recommendation_zh=hide(opinion.recommendation_zh),
        )

    async def _patiently(self, asked: Prompt, model: _Model, ai: AiConfig) -> tuple[ModelReply, Answer]:
        """Request until there is an answer that can be used, at most ai.retry_times times."""
        attempt = 0
        while True:
            attempt += 1
            now = self._clock()
            if self.budget.left(ai.max_per_day, now) <= 0:
                raise AiBudgetSpent(f"{ai.max_per_day} requests were made in the last 24 hours")
            self.budget.spend(now)
            try:
                return await self._request(asked, model, ai)
            except AiFailed as e:
                pause = max(e.wait, ai.retry_delay * 2 ** (attempt - 1))
                if not e.retryable or attempt >= ai.retry_times or pause > _LONGEST_PAUSE:
                    self._note(e)
                    raise
            await self._sleep(pause)

    async def _request(self, asked: Prompt, model: _Model, ai: AiConfig) -> tuple[ModelReply, Answer]:
        """One request, within its time, counted."""
        began = time.perf_counter()
        outcome: RequestOutcome = "success"
        try:
            reply = await _in_time(model.client.ask(asked), ai.timeout)
            self._count_tokens(reply, ai)
            return reply, answer_of(reply)
        except AiFailed as e:
            outcome = next(word for kind, word in _OUTCOMES if isinstance(e, kind))
            raise
        finally:
            self.counts.requests[model.access.address.provider, outcome] += 1
            self.counts.seconds = self.counts.seconds.with_one(time.perf_counter() - began)

    def _count_tokens(self, reply: ModelReply, ai: AiConfig) -> None:
        counts = self.counts
        kinds: tuple[tuple[TokenKind, int | None, float | None], ...] = (
            ("input", reply.input_tokens, ai.price_input),
            ("output", reply.output_tokens, ai.price_output),
        )
        for kind, count, price in kinds:
            if count is not None and count >= 0:
                counts.tokens[kind] += count
                if price is not None:
                    counts.cost = (counts.cost or 0.0) + count * price / _MILLION

    def _note(self, error: AiFailed) -> None:
        """Pause after a failure of the provider, longer each time."""
        now = self._clock()
        if error.provider_wide and now >= self._quiet[0]:  # of several questions at once, the first one counts
            least, most = _QUIET
            self._failures += 1
            self._quiet = (now + max(error.wait, min(most, least * 2 ** (self._failures - 1))), error.code)


async def _in_time(request: Awaitable[ModelReply], seconds: Seconds) -> ModelReply:
    """The SDK's own timeout is one between two bytes; a stream that drips would never end."""
    try:
        async with asyncio.timeout(seconds):
            return await request
    except TimeoutError as e:
        raise AiTimeout(f"the language model's answer was not complete within {seconds:g} s") from e


def _hider(key: str) -> Callable[[str], str]:
    secrets = (key,) if len(key) >= 4 else ()
    return lambda text: redacted(text, secrets)


def _key_in(file: str | None) -> str:
    if file is None:
        return ""
    try:
        with open(file, encoding="utf-8") as found:
            return found.read(_KEY_MOST).strip()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigInvalid(f"ai.api_key_file: {file} cannot be read: {e}") from e
