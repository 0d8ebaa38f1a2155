"""Compares the verdicts with the truth, and applies two simple rules to the same samples."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from bench.trust_case import BUSY, EITHER, IDLE, PREPARING, UNPROVEN, Case, Subject
from bench.trust_world import mig_uuid

ABSENT = "absent"
_QUIET = (IDLE, PREPARING)  # truths of GPUs without work
_PREPARES = "idle-preparing"
_OOUR_IDLE = 10.0
_OOUR_POWER = 250.0  # watts; gpu-oour's gpu_defaults
_OOUR_MEMORY = 32_000.0  # MiB
_OOUR_TERMS = ("GPU_UTIL", "MEM_COPY_UTIL", "FB_USED", "FB_FREE", "POWER_USAGE")


class Claim(Struct, frozen=True, kw_only=True):
    """The answer of one judge for one subject."""

    verdict: str = ABSENT
    status: str = ABSENT
    use_class: str = ABSENT


class Judged(Struct, frozen=True, kw_only=True):
    """One subject with its truth and the answer of a judge."""

    kind: str
    setup: str
    run: str
    tenant: bool
    named: bool  # its truth is stated in the case, so it is counted for recall
    truth: str
    verdict: str
    status: str
    use_class: str = ABSENT

    @property
    def prepares(self) -> bool:
        """Whether the judge says that the tenant prepares data: then its GPU is not taken away."""
        return self.use_class == _PREPARES

    @property
    def wrong(self) -> bool:
        """Whether the verdict is wrongly idle, so that a GPU in use might be taken away."""
        unsafe = self.truth in (BUSY, UNPROVEN) or (self.truth == PREPARING and not self.prepares)
        return self.verdict == IDLE and unsafe

    @property
    def wrong_status(self) -> bool:
        """Whether the status is wrongly idle."""
        return self.status == IDLE and self.truth in (BUSY, UNPROVEN)

    @property
    def missed(self) -> bool:
        """Whether the subject is provably idle, but was not reported as idle."""
        right = self.verdict == IDLE and self.prepares == (self.truth == PREPARING)
        return self.named and self.truth in _QUIET and not right


class Score(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Precision and recall of `idle`."""

    claimed: int = 0
    wrong: int = 0
    claimed_status: int = 0
    wrong_status: int = 0
    idle_gpus: int = 0
    missed_gpus: int = 0
    idle_tenants: int = 0
    missed_tenants: int = 0

    @property
    def precision(self) -> float:
        """The share of idle verdicts that are right."""
        return 1 - self.wrong / self.claimed if self.claimed else 1.0

    @property
    def precision_status(self) -> float:
        """The share of idle statuses that are right."""
        return 1 - self.wrong_status / self.claimed_status if self.claimed_status else 1.0

    @property
    def recall(self) -> float:
        """The share of idle GPUs and MIG instances that were found."""
        return 1 - self.missed_gpus / self.idle_gpus if self.idle_gpus else 1.0

    @property
    def recall_tenants(self) -> float:
        """The share of idle tenants of shared GPUs that were found."""
        return 1 - self.missed_tenants / self.idle_tenants if self.idle_tenants else 1.0


def score(judged: Iterable[Judged]) -> Score:
    """The score over all these subjects."""
    counted = [one for one in judged if one.truth != EITHER]
    idle = [one for one in counted if one.named and one.truth in _QUIET]
    return Score(
        claimed=sum(one.verdict == IDLE for one in counted),
        wrong=sum(one.wrong for one in counted),
        claimed_status=sum(one.status == IDLE for one in counted),
        wrong_status=sum(one.wrong_status for one in counted),
        idle_gpus=sum(not one.tenant for one in idle),
        missed_gpus=sum(one.missed for one in idle if not one.tenant),
        idle_tenants=sum(one.tenant for one in idle),
        missed_tenants=sum(one.missed for one in idle if one.tenant),
    )


class Tally(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answers of one judge for all subjects of one kind in one run."""

    judge: str
    run: str
    kind: str
    truth: str
    subjects: int
    score: Score
    wrong: tuple[str, ...] = ()  # setups with a wrong verdict or status, or with an idle subject that was not found


def tallies(judge: str, found: Iterable[Judged], truths: Mapping[str, str]) -> Iterator[Tally]:
    """The tallies by run and kind, in the order of the kinds."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in found:
        groups.setdefault((one.run, one.kind), []).append(one)
    for (run, kind), members in groups.items():
        yield Tally(
            judge=judge,
            run=run,
            kind=kind,
            truth=truths[kind],
            subjects=len(members),
            score=score(members),
            wrong=tuple(dict.fromkeys(_said(one) for one in members if one.wrong or one.wrong_status or one.missed)),
        )


def _said(one: Judged) -> str:
    what = "tenant" if one.tenant else "GPU"
    return f"{one.setup}: {what} {one.truth}, verdict {one.verdict} ({one.use_class}), status {one.status}"


def total(parts: Iterable[Score]) -> Score:
    """The sum of scores."""
    columns = [[getattr(one, name) for name in Score.__struct_fields__] for one in parts]
    sums = [sum(column) for column in zip(*columns, strict=True)] or [0] * len(Score.__struct_fields__)
    return Score(**dict(zip(Score.__struct_fields__, sums, strict=True)))


def judged(cases: list[Case], claims: Mapping[Subject, Claim], run: str, *, seen_only: bool = False) -> list[Judged]:
    """Every subject of every case, and every further tenant for which there is an answer."""
    found = []
    for case in cases:
        uuids = {gpu.uuid for gpu in case.gpus}
        subjects = {**dict.fromkeys(case.truth), **{one: None for one in claims if one.uuid in uuids}}
        for subject in subjects:
            claim = claims.get(subject, Claim())
            if seen_only and claim.verdict == ABSENT:
                continue
            found.append(
                Judged(
                    kind=case.kind.name,
                    setup=case.setup.name,
                    run=run,
                    tenant=bool(subject.pod),
                    named=subject in case.truth,
                    truth=truth_of(case, subject),
                    verdict=claim.verdict,
                    status=claim.status,
                    use_class=claim.use_class,
                )
            )
    return found


def truth_of(case: Case, subject: Subject) -> str:
    """The truth of a subject; a tenant without a stated truth has that of its GPU or MIG instance."""
    above = (subject, subject._replace(pod=""), Subject(subject.uuid))
    return next(case.truth[one] for one in above if one in case.truth)


# ── vgpuscope ────────────────────────────────────────────────────────────────────────────────────────────────────


def claims(rows: list[dict[str, Any]], cases: list[Case]) -> dict[Subject, Claim]:
    """The answers in the rows of /results, for GPUs, MIG instances and tenants."""
    instances = {mig_uuid(gpu, one): str(one.gi) for case in cases for gpu in case.gpus for one in gpu.instances}
    found: dict[Subject, Claim] = {}
    for row in rows:
        mig = row.get("mig") or ""
        place = instances.get(mig, mig.removeprefix("GI-"))
        one_gpu = Subject(row["gpu_id"], place)
        _worst(found, one_gpu, _claim(row, row["use_class"]))
        for tenant in row.get("tenants") or ():
            said = tenant.get("verdict") or ABSENT
            shown = Claim(
                verdict=said, status=tenant.get("status") or said, use_class=tenant.get("use_class") or ABSENT
            )
            _worst(found, one_gpu._replace(pod=tenant["pod"]), shown)
    return found


def _claim(row: dict[str, Any], use_class: str) -> Claim:
    verdict = IDLE if (use_class or "").startswith("idle") else row["verdict"]
    return Claim(verdict=verdict, status=row["status"], use_class=use_class or ABSENT)


def _worst(found: dict[Subject, Claim], subject: Subject, claim: Claim) -> None:
    """Adds an answer; if several rows are about one subject, an idle one takes precedence."""
    before = found.get(subject, Claim())
    found[subject] = Claim(
        verdict=IDLE if IDLE in (before.verdict, claim.verdict) else claim.verdict,
        status=IDLE if IDLE in (before.status, claim.status) else claim.status,
        use_class=claim.use_class,
    )


# ── simple rules on the same samples ─────────────────────────────────────────────────────────────────────────────


def oour_claims(url: str, at: float, window: float) -> dict[Subject, Claim]:
    """gpu-oour's formula: means of the first series of a UUID; a missing value is 0; a score below 10 is idle."""
    means = {term: _means(url, f'DCGM_FI_DEV_{term}{{pod!=""}}', at, window) for term in _OOUR_TERMS}
    found: dict[Subject, Claim] = {}
    for labels in _discovered(url):
        uuid = labels["UUID"]
        util, copy, used, free, power = (means[term].get(uuid, 0.0) for term in _OOUR_TERMS)
        said = IDLE if oour_score(util, copy, used=used, free=free, power=power) < _OOUR_IDLE else "in_use"
        one_gpu = Subject(uuid, labels.get("GPU_I_ID", ""))
        _worst(found, one_gpu, Claim(verdict=said, status=said))
        pod = labels.get("exported_pod") or labels.get("pod", "")
        _worst(found, one_gpu._replace(pod=pod), Claim(verdict=said, status=said))
    return found


def oour_score(util: float, copy: float, *, used: float, free: float, power: float) -> float:
    """gpu-oour's score, from percent, MiB and watts."""
    share = min(1.0, used / ((used + free) or _OOUR_MEMORY))
    return round(0.5 * util + 0.2 * copy + 20 * share + 10 * min(1.0, power / _OOUR_POWER), 1)


def _discovered(url: str) -> list[dict[str, str]]:
    return list(_ask(url, "series", {"match[]": 'DCGM_FI_DEV_GPU_UTIL{pod!=""}'}))


def _means(url: str, query: str, at: float, window: float) -> dict[str, float]:
    span = {"query": query, "start": at - window, "end": at, "step": 30}
    found: dict[str, float] = {}
    for series in _ask(url, "query_range", span)["result"]:
        values = [float(text) for _, text in series["values"] if text != "NaN"]
        found.setdefault(series["metric"].get("UUID", ""), sum(values) / len(values) if values else 0.0)
    return found


def zero_claims(url: str, at: float, window: float) -> dict[Subject, Claim]:
    """`max_over_time(utilisation[window]) == 0`, with the utilisation of dcgm-exporter or of the agent."""
    found: dict[Subject, Claim] = {}
    for name, key in (("DCGM_FI_DEV_GPU_UTIL", "UUID"), ("vgpuscope_gpu_utilization_ratio", "gpu_uuid")):
        query = f"max by ({key}, GPU_I_ID) (max_over_time({name}[{round(window)}s]))"
        for series in _ask(url, "query", {"query": query, "time": at})["result"]:
            said = IDLE if float(series["value"][1]) == 0 else "in_use"
            subject = Subject(series["metric"][key], series["metric"].get("GPU_I_ID", ""))
            _worst(found, subject, Claim(verdict=said, status=said))
    return found


def _ask(url: str, path: str, form: dict[str, object]) -> Any:
    body = urllib.parse.urlencode(form).encode()
    with urllib.request.urlopen(f"{url}/api/v1/{path}", body, timeout=60) as answer:
        return json.load(answer)["data"]
