"""Asks a language model about the tenants of an analysis, beside the analyses: a slow or dead model delays none.

analysis ─► evidence ─► what has no opinion yet ─► questions, within budgets ─► opinions, kept by evidence ─► shown
                                                                              └► reclaim: agrees, veto, waiting, silent
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

from vgpuscope.config import Config
from vgpuscope.config.ai import AiConfig
from vgpuscope.logic.console.opinions import deciding, opinion_row
from vgpuscope.logic.opinion.answers import in_its_languages, stance
from vgpuscope.logic.opinion.budget import RequestBudget
from vgpuscope.logic.opinion.courses import Courses, with_courses
from vgpuscope.logic.opinion.evidence import Bounds, Candidate, candidates, evidence_on, keys_by_uid
from vgpuscope.logic.reclaim.brakes import WorkloadFacts
from vgpuscope.model.analysis import Analysis, Window
from vgpuscope.model.console.opinion import OpinionRow
from vgpuscope.model.errors import AiBudgetSpent, AiFailed, ConfigInvalid, HistoryDown, ScopeError
from vgpuscope.model.opinion import NO_OPINIONS, NoOpinion, Opinion, OpinionsShown, Stance, TenantEvidence
from vgpuscope.model.quantity import DeviceUUID, Seconds, UnixTime
from vgpuscope.model.reclaim import Workload
from vgpuscope.runtime.log import OnChange, error_fields
from vgpuscope.services.analyzer.opinion.asking import Asker
from vgpuscope.sources.opinion.address import address_of
from vgpuscope.sources.opinion.client import check_sdk
from vgpuscope.store.opinions import OpinionStore

log = logging.getLogger(__name__)

_AGAIN: Seconds = 900.0  # until evidence that got a useless answer is asked about again
_MOST_KEPT = 50_000  # opinions in memory

_KNOWN: dict[Stance, WorkloadFacts] = {word: WorkloadFacts(model=word) for word in get_args(Stance)}

ReadCourses = Callable[[Window, Collection[DeviceUUID]], Awaitable[Courses]]


class _Current(NamedTuple):
    """The analysis that is shown, and what is worth asking about in it."""

    analysis: Analysis | None = None  # None: nothing is asked about it
    asks: bool = False  # the model is asked about it
    every: bool = False  # about every GPU, since a caller asked for that
    found: tuple[Candidate, ...] = ()
    by_uid: Mapping[str, tuple[str, ...]] = {}


def check_model(config: Config) -> None:
    """ConfigInvalid if a model is to be asked and cannot be: no address, or no SDK."""
    if config.ai.enabled and (error := why_not(config)) is not None:
        raise error


def why_not(config: Config) -> ConfigInvalid | None:
    """Why no model can be asked with these settings; None: it can."""
    ai = config.ai
    if not (ai.provider or ai.api_url or ai.api_key or ai.api_key_file):  # nobody said that names may go to its maker
        return ConfigInvalid(
            f"ai.api_url: missing, and there is no ai.api_key for the maker of {ai.model[:80]!r}",
            hint="Set the URL of the language model, or the API key (AI_API_KEY).",
        )
    try:
        check_sdk(address_of(ai.provider, ai.api_url, model=ai.model).provider)
    except ConfigInvalid as e:
        return e
    return None


class Opinions:
    """The opinions on what is shown, and the questions that are still to be asked."""

    def __init__(
        self,
        config: Callable[[], Config],
        *,
        asks: Callable[[], bool],
        store: OpinionStore | None,
        courses: ReadCourses,
        asker: Asker | None = None,
        clock: Callable[[], UnixTime] = time.time,
    ) -> None:
        """`asks`: whether this replica asks, and not another. `courses` may raise ScopeError."""
        self._config, self._asks, self._store, self._courses, self._clock = config, asks, store, courses, clock
        self.asker = asker or Asker(clock=clock)
        self._wish: bool | None = None  # whether the next analysis is asked about; None: as configured
        self._known: dict[str, Opinion | NoOpinion] = {}
        self._current = _Current()
        self._shown: tuple[object, OpinionsShown] = (None, NO_OPINIONS)  # made for, made
        self._todo = asyncio.Event()
        self._loaded = False
        self._settings: AiConfig | None = None  # those that the failures belong to
        self._told = OnChange(log)
        self.last_error: str | None = None  # code of the last failure; None: the model answered since
        self.changes = 0  # grows with everything that is shown

    # ── what others ask ──────────────────────────────────────────────────────────────────────────────────────────

    def wish(self, use: bool | None, *, joined: bool) -> tuple[bool, ConfigInvalid | None]:
        """Whether the analysis that was just started, or joined, is asked about; and why not, if it cannot be.

        Whoever joins a running analysis can add the model to it, and cannot take it from whoever started it.
        """
        config = self._config()
        error = why_not(config) if use else None
        if not joined:
            self._wish = None if error else use
        elif use and not error:
            self._wish = True
        if error:
            return False, error
        return (config.ai.enabled if self._wish is None else self._wish), None

    @property
    def shown(self) -> OpinionsShown:
        """The opinions on the analysis that is shown."""
        current, ai = self._current, self._config().ai
        if not current.asks:
            return NO_OPINIONS
        made_for = (self.changes, ai.threshold, ai.language)
        if self._shown[0] != made_for:
            parts = {one.part: self._known.get(one.key) for one in current.found}
            self._shown = (made_for, OpinionsShown(parts=parts, threshold=ai.threshold, language=ai.language))
        return self._shown[1]

    def on_pod(self, uid: str) -> OpinionRow | None:
        """The opinion that counts for a pod; None: the model is not asked about it."""
        current, threshold = self._current, self._config().ai.threshold
        keys = current.by_uid.get(uid, ()) if current.asks else ()
        return deciding(opinion_row(self._known.get(key), threshold) for key in keys)

    def on_share(self, workload: Workload, gpu_id: DeviceUUID) -> Opinion | None:
        """The opinion on a workload's share of one GPU, if there is one."""
        own = [
            self._known.get(one.key)
            for one in self._current.found
            if one.uid == workload.uid and one.part.gpu_id == gpu_id
        ]
        return next((one for one in own if isinstance(one, Opinion)), None)

    def stance(self, workload: Workload) -> Stance:
        """What the model says of taking GPUs back from a workload."""
        ai, current = self._config().ai, self._current
        if not ai.enabled:
            return "off"
        keys = current.by_uid.get(workload.uid, ())
        return stance(keys, self._known, threshold=ai.threshold, required=ai.required)

    def facts(self, workload: Workload) -> WorkloadFacts:
        """What reclaim has to know of a workload from here."""
        return _KNOWN[self.stance(workload)]

    # ── after each analysis ──────────────────────────────────────────────────────────────────────────────────────

    async def take(self, analysis: Analysis) -> None:
        """Find the questions that an analysis raises; `ask_forever` asks them."""
        wish, self._wish = self._wish, None
        await self._see(analysis, asks=self._config().ai.enabled if wish is None else wish, every=bool(wish))
        self._todo.set()

    async def show(self, analysis: Analysis) -> None:
        """Show what is known of an analysis that another replica, or an earlier run, made."""
        self._loaded = False
        await self._see(analysis, asks=self._config().ai.enabled)

    async def _see(self, analysis: Analysis, *, asks: bool, every: bool = False) -> None:
        config = self._config()
        if not asks and not config.ai.enabled:
            self._current = _Current()
        else:
            await self._load()
            bounds = Bounds(idle=config.thresholds.idle, low=config.thresholds.low_utilization)
            found = await asyncio.to_thread(candidates, analysis, bounds, every=every)
            self._current = _Current(analysis, asks, every, found, keys_by_uid(found))
            self._forget({one.key for one in found})
        self.changes += 1

    def _forget(self, current: Collection[str]) -> None:
        """Forget failures about what is gone, and, if there are too many, the oldest opinions."""
        self._known = {key: one for key, one in self._known.items() if key in current or isinstance(one, Opinion)}
        if len(self._known) > _MOST_KEPT:
            oldest = sorted((key for key in self._known if key not in current), key=lambda key: self._known[key].at)
            for key in oldest[: len(self._known) - _MOST_KEPT]:
                del self._known[key]

    async def _load(self) -> None:
        """Read the opinions of earlier runs and of other replicas."""
        if self._store is None or self._loaded:
            return
        try:
            saved = await self._store.load(self._clock())
        except HistoryDown as e:
            self._told.tell("store", e.code, level=logging.WARNING, message="opinions were not read", **error_fields(e))
            return
        self._known |= {key: in_its_languages(one) for key, one in saved.opinions.items()}
        self.asker.budget = RequestBudget(saved.requests)
        self._loaded = True

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask_forever(self) -> None:
        """Ask what is open after each analysis."""
        while True:
            await self._todo.wait()
            self._todo.clear()
            await self.ask_open()

    async def ask_open(self) -> None:
        """One round of ask_forever."""
        current, ai = self._current, self._config().ai
        if current.analysis is None or not current.asks or not self._asks():
            return
        self._forget_failures(ai)
        waiting = self._unanswered(current.found)
        if not waiting:
            return
        try:
            await self.asker.begin(ai)
        except ScopeError as e:
            self._leave(waiting, e.code, until=self._clock())
            self._tell(e)
            return
        if (held := self.asker.held_back(ai)) is not None:
            self._leave(waiting, held[0], until=held[1])
            return
        most = self.asker.budget.left(ai.max_per_day, self._clock()) if current.every else ai.max_per_cycle
        chosen = await asyncio.to_thread(evidence_on, current.analysis, waiting[:most])
        await self._ask_all(await self._with_courses(chosen, current.analysis.window), ai)

    async def close(self) -> None:
        """Close the connections to the model."""
        await self.asker.close()

    def _forget_failures(self, ai: AiConfig) -> None:
        """What failed with other settings may work with these."""
        if self._settings is not None and ai != self._settings:
            self._known = {key: one for key, one in self._known.items() if isinstance(one, Opinion)}
        self._settings = ai

    def _unanswered(self, found: Iterable[Candidate]) -> list[Candidate]:
        """Evidence without an opinion, each once, most urgent first; after a failure not before its time."""
        now = self._clock()
        asked: dict[str, Candidate] = {}
        for one in found:
            known = self._known.get(one.key)
            if known is None or (isinstance(known, NoOpinion) and known.retry_at <= now):
                asked.setdefault(one.key, one)
        return list(asked.values())

    def _leave(self, waiting: Iterable[Candidate | TenantEvidence], code: str, *, until: UnixTime) -> None:
        """Record that there is no answer: the numbers decide, unless an opinion is required."""
        now = self._clock()
        for one in waiting:
            self._known[one.key] = NoOpinion(key=one.key, code=code, at=now, retry_at=until)
        self.changes += 1

    async def _with_courses(self, chosen: Sequence[TenantEvidence], window: Window) -> list[TenantEvidence]:
        """The evidence with the course of each quantity; without it, if the source does not answer."""
        try:
            courses = await self._courses(window, {one.part.gpu_id for one in chosen})
        except ScopeError as e:
            log.info("questions are asked without the values over time", extra=error_fields(e))
            return list(chosen)
        return [with_courses(one, courses) for one in chosen]

    async def _ask_all(self, chosen: Sequence[TenantEvidence], ai: AiConfig) -> None:
        places = asyncio.Semaphore(ai.concurrency)
        new: list[Opinion] = []

        async def one(found: TenantEvidence) -> None:
            async with places:
                if (opinion := await self._ask(found, ai)) is not None:
                    new.append(opinion)

        try:
            async with asyncio.TaskGroup() as tasks:
                for found in chosen:
                    tasks.create_task(one(found), name="opinion")
        finally:
            await self._save(new)

    async def _ask(self, found: TenantEvidence, ai: AiConfig) -> Opinion | None:
        """Ask about one tenant, and keep the answer, or why there is none."""
        if (held := self.asker.held_back(ai)) is not None:  # since this round began
            self._leave((found,), held[0], until=held[1])
            return None
        try:
            opinion = await self.asker.ask(found, ai)
        except AiFailed as e:
            held = self.asker.held_back(ai) if e.provider_wide or isinstance(e, AiBudgetSpent) else None
            self._leave((found,), e.code, until=held[1] if held else self._clock() + _AGAIN)
            self._tell(e)
            return None
        self._known[found.key] = opinion
        self.last_error = None
        self.changes += 1
        self._told.tell("model", "ok", level=logging.INFO, message="the language model answers", model=ai.model)
        return opinion

    async def _save(self, new: Sequence[Opinion]) -> None:
        if self._store is None:
            return
        now = self._clock()
        try:
            await self._store.save(new, self.asker.budget.hours(now), now=now)
        except HistoryDown as e:
            self._told.tell(
                "store", e.code, level=logging.WARNING, message="opinions were not saved", **error_fields(e)
            )
        else:
            self._told.tell("store", "ok", level=logging.DEBUG, message="opinions are saved")

    def _tell(self, error: ScopeError) -> None:
        self.last_error = error.code
        self._told.tell("model", error.code, level=logging.WARNING, message="no opinion", **error_fields(error))
