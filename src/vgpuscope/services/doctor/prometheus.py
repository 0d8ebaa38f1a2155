"""What a PromQL engine knows about GPUs, its targets and its rules."""

import asyncio
import statistics
from collections.abc import Awaitable
from itertools import pairwise
from typing import TypeVar

import msgspec

from vgpuscope.formats.prom import promql
from vgpuscope.formats.prom.rules import decode_rules
from vgpuscope.logic.doctor import queries
from vgpuscope.logic.doctor.known_metrics import unknown_names
from vgpuscope.model.doctor import Job, Missing, PrometheusFacts, SeriesFacts, SeriesValue
from vgpuscope.model.errors import ConfigInvalid, QueryFailed, ScopeError
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.doctor.missing import missing
from vgpuscope.sources.doctor.pages import gpus_of
from vgpuscope.sources.fleet.promapi import PromApi

T = TypeVar("T")
Row = tuple[str, dict[str, str], float]

_JOBS = 40  # of which the interval is measured


class PrometheusReader:
    """Reads one engine, until a deadline."""

    def __init__(self, api: PromApi, *, condition: str, within: Seconds) -> None:
        self._api, self._text, self._within = api, condition, within
        self._condition = promql.parse_condition(condition) if condition else ()
        self._by = 0.0

    async def read(self, *, given: bool = True) -> tuple[PrometheusFacts | Missing, SeriesFacts | Missing]:
        """What there is; never raises."""
        self._by = asyncio.get_running_loop().time() + self._within
        try:
            found = await self._facts()
        except (ScopeError, TimeoutError) as e:
            why = missing("prometheus", e, place=self._api.url, given=given)
            return why, msgspec.structs.replace(why, fact="series")
        try:
            return found, await self._series()
        except (ScopeError, TimeoutError) as e:
            return found, missing("series", e, place=self._api.url)

    async def _facts(self) -> PrometheusFacts:
        condition = self._condition
        targets, names = await asyncio.gather(self._number(queries.all_targets()), self._rows(queries.names()))
        matched = await self._number(queries.count(condition)) if condition else None
        everything = await self._number(queries.count(())) if condition else 0.0
        known = {name: int(value) for name, _, value in names}
        return PrometheusFacts(
            url=self._api.url,
            targets=int(targets),
            jobs=await self._jobs(),
            names=known,
            condition=self._text,
            matched=None if matched is None else int(matched),
            unmatched=int(everything),
            unknown_names=await self._or_none(self._unknown_names(set(known))),
        )

    # ── targets ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _jobs(self) -> tuple[Job, ...]:
        condition = self._condition
        with_series, named = await asyncio.gather(
            self._rows(queries.gpu_jobs(condition)), self._rows(queries.named_jobs(condition))
        )
        jobs = sorted({labels["job"] for _, labels, _ in (*with_series, *named) if labels.get("job")})
        if not jobs:
            return ()
        states, down, chosen = await asyncio.gather(
            self._rows(queries.up(jobs, condition)),
            self._rows(queries.down(jobs, condition)),
            self._rows(queries.one_target(jobs[:_JOBS], condition)),
        )
        targets = {labels["job"]: labels.get("instance", "") for _, labels, _ in chosen if "job" in labels}
        intervals = await asyncio.gather(*(self._interval(job, instance) for job, instance in targets.items()))
        by_job = dict(zip(targets, intervals, strict=True))
        ages = {labels.get("job", ""): age for _, labels, age in await self._or_none(self._ages()) or ()}
        counted = {(labels.get("job", ""), labels.get("value", "")): int(value) for _, labels, value in states}
        return tuple(
            Job(
                name=job,
                up=counted.get((job, "1"), 0),
                down=counted.get((job, "0"), 0),
                interval=by_job.get(job),
                examples=tuple(
                    f"{job}: {labels.get('instance', '?')}" for _, labels, _ in down if labels.get("job") == job
                ),
                age=ages.get(job),
            )
            for job in jobs
            if (job, "1") in counted or (job, "0") in counted
        )

    async def _interval(self, job: str, instance: str) -> Seconds | None:
        """The time between two scrapes of one target; None if there were too few."""
        try:
            data = await self._api.query(queries.scrapes(job, instance, self._condition), at=None, by=self._by)
            lines = promql.decode_matrix(data).rows
        except QueryFailed:
            return None
        times = [at for line in lines[:1] for at, _ in line.samples()]
        gaps = [later - before for before, later in pairwise(times)]
        return statistics.median(gaps) if len(gaps) > 1 else None

    async def _ages(self) -> list[Row]:
        return await self._rows(queries.ages(self._condition, await self._some()))

    # ── series ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _series(self) -> SeriesFacts:
        some, gpus = await self._some(), await self._gpus()
        rows = await self._rows(queries.series(self._condition, some))
        found = [SeriesValue(name=name, labels=labels, value=value) for name, labels, value in rows]
        flaps = await self._or_none(self._flapping(some))
        looked = len(gpus_of(found))
        return SeriesFacts(
            now=tuple(found),
            gpus=looked,
            all_gpus=gpus if some else looked,
            flapping=flaps,
            origin=self._api.url,
        )

    async def _flapping(self, some: queries.Condition) -> tuple[str, ...]:
        found = await asyncio.gather(
            *(self._rows(queries.flapping(label, self._condition, some)) for label in ("pod", "exported_pod"))
        )
        return tuple(sorted({labels.get("UUID", "?") for rows in found for _, labels, _ in rows}))

    async def _gpus(self) -> int:
        rows = await self._rows(queries.all_gpus(self._condition))
        return int(max((value for _, _, value in rows), default=0.0))

    async def _some(self) -> queries.Condition:
        return queries.some_gpus(await self._gpus())

    # ── rules ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _unknown_names(self, there: set[str]) -> tuple[tuple[str, str], ...]:
        """GPU metrics in loaded rules that nothing exports, with the rule."""
        rules = decode_rules(await self._api.rules(by=self._by))
        return unknown_names(((rule.name, rule.query) for rule in rules), there)

    # ── queries ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _rows(self, query: str) -> list[Row]:
        data = await self._api.query(query, at=None, by=self._by)
        return await asyncio.to_thread(_decoded, data)

    async def _number(self, query: str) -> float:
        return next((value for _, _, value in await self._rows(query)), 0.0)

    async def _or_none(self, asked: Awaitable[T]) -> T | None:
        """The answer to a question that not every engine understands."""
        try:
            return await asked
        except QueryFailed:
            return None


def _decoded(data: bytes) -> list[Row]:
    return [(*promql.decode_named(row.metric), row.value[1]) for row in promql.decode_vector(data).rows]


def open_prometheus(url: str, *, token: str | None = None) -> PromApi:
    """A client for some questions; ConfigInvalid if this is no address."""
    if "://" not in url:
        url = f"http://{url}"
    if url.startswith("//"):
        raise ConfigInvalid(
            f"{url!r} is not the address of a Prometheus", hint="Use http(s)://HOST:PORT, before /api/v1."
        )
    return PromApi(
        url=url,
        headers={},
        basic=None,
        token=token,
        token_file=None,
        ca_file=None,
        insecure=False,
        retries=1,
        concurrency=4,
        largest=256 * 2**20,
    )
