"""Cases, calls on their way, the audit log and the machine's memory, in the store.

One analysis is saved as one transaction: the cases that moved, the calls that follow from it, and what the audit log
says of it. A crash between two steps therefore loses none of the three, or all of them.

A replica that becomes leader takes a new term. Every write names the term of its writer. A replica that was leader, and
does not know yet that it no longer is, has an older term: its writes are refused.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from vgpuscope.model.audit import AuditEntry, AuditPage
from vgpuscope.model.errors import LinkUsed, NotLeader
from vgpuscope.model.notices import SignedLink
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import Call, CallStatus, Case
from vgpuscope.store.engine.database import Transaction, Upsert, Values
from vgpuscope.store.engine.engine import Engine
from vgpuscope.store.engine.migrations import Migration, TableSet

TABLES = TableSet(
    "reclaim",
    (
        Migration(
            1,
            (
                "CREATE TABLE reclaim_cases (id text PRIMARY KEY, state text NOT NULL, body text NOT NULL)",
                """
CREATE TABLE reclaim_calls (
    key text PRIMARY KEY,
    case_id text NOT NULL,
    status text NOT NULL,
    next_at double precision NOT NULL,
    body text NOT NULL
)
""",
                "CREATE INDEX reclaim_calls_waiting ON reclaim_calls (status, next_at)",
                "CREATE INDEX reclaim_calls_case ON reclaim_calls (case_id)",
                """
CREATE TABLE reclaim_audit (
    number {id},
    at double precision NOT NULL,
    case_id text NOT NULL,
    namespace text NOT NULL,
    body text NOT NULL
)
""",
                "CREATE INDEX reclaim_audit_case ON reclaim_audit (case_id)",
                """
CREATE TABLE reclaim_machine (
    id integer PRIMARY KEY CHECK (id = 1),
    term integer NOT NULL,
    stopped_by text NOT NULL,
    memory text NOT NULL
)
""",
                "INSERT INTO reclaim_machine (id, term, stopped_by, memory) VALUES (1, 0, '', '')",
            ),
        ),
    ),
)
LINKS = TableSet(
    "notices",
    (
        Migration(
            1,
            (
                "CREATE TABLE notices_links_used "
                "(nonce text PRIMARY KEY, case_id text NOT NULL, at double precision NOT NULL, "
                "expires double precision NOT NULL, seen integer NOT NULL)",
            ),
        ),
    ),
)
NOTICE = "notice/"  # how the keys of notices begin; no UID does
_CASES = Upsert(
    table="reclaim_cases",
    columns=(("id", "text"), ("state", "text"), ("body", "text")),
    conflict="(id) DO UPDATE SET state = excluded.state, body = excluded.body",
    returning=("id",),
)
_CALLS = Upsert(
    table="reclaim_calls",
    columns=(
        ("key", "text"),
        ("case_id", "text"),
        ("status", "text"),
        ("next_at", "double precision"),
        ("body", "text"),
    ),
    # The same key is the same call: delivered or given up, it is not made again. A cancelled one waits again.
    conflict="(key) DO UPDATE SET status = excluded.status, next_at = excluded.next_at, body = excluded.body "
    "WHERE reclaim_calls.status = 'cancelled'",
    returning=("key",),
)
_PAGE_MOST = 1000


class ReclaimBatch(Struct, frozen=True, kw_only=True):
    """What is saved together."""

    cases: Sequence[Case] = ()
    cancel: Sequence[str] = ()  # ids of cases whose waiting calls are cancelled
    calls: Sequence[Call] = ()  # new ones, which wait
    audit: Sequence[AuditEntry] = ()
    memory: str | None = None  # JSON; None: unchanged
    forget: Sequence[str] = ()  # ids of cases that have ended long ago
    used: SignedLink | None = None  # a link that is used up by this; LinkUsed if it was before


class SavedReclaim(NamedTuple):
    """What the store knows, read by a new leader."""

    term: int
    cases: dict[str, Case]
    memory: str
    stopped_by: str


class News(NamedTuple):
    """What other replicas may have changed."""

    answered: bool  # an owner answered through another replica, and the leader has not read it yet
    stopped_by: str
    mark: str  # another one as soon as something else can be shown


class ReclaimStore:
    """Reads and writes through the engine; every call may raise HistoryDown."""

    def __init__(self, engine: Engine) -> None:
        engine.register(TABLES)
        engine.register(LINKS)
        self._engine = engine

    async def lead(self) -> SavedReclaim:
        """Begin a new term, and read everything. Writes of earlier terms are refused from now on."""

        def job(tx: Transaction) -> SavedReclaim:
            [(term, memory, stopped_by)] = tx.all(
                "UPDATE reclaim_machine SET term = term + 1 WHERE id = 1 RETURNING term, memory, stopped_by"
            )
            tx.all("UPDATE notices_links_used SET seen = 1 WHERE seen = 0")
            return SavedReclaim(term, _cases(tx), memory, stopped_by)

        return await self._engine.write(job)

    async def news(self) -> News:
        """Whether something is to be read again."""

        def job(tx: Transaction) -> News:
            [(term, stopped_by)] = tx.all("SELECT term, stopped_by FROM reclaim_machine WHERE id = 1")
            [(newest,)] = tx.all("SELECT max(number) FROM reclaim_audit")  # every move and every turn of the breaker
            return News(_unseen(tx), stopped_by, f"{term} {newest} {stopped_by}")

        return await self._engine.read(job)

    async def look(self) -> SavedReclaim:
        """Read everything, for a replica that does not lead."""

        def job(tx: Transaction) -> SavedReclaim:
            [(term, memory, stopped_by)] = tx.all("SELECT term, memory, stopped_by FROM reclaim_machine WHERE id = 1")
            return SavedReclaim(term, _cases(tx), memory, stopped_by)

        return await self._engine.read(job)

    async def catch_up(self, *, term: int) -> dict[str, Case]:
        """All cases, with what owners answered through other replicas; NotLeader in a later term."""

        def job(tx: Transaction) -> dict[str, Case]:
            _hold(tx, term, caught_up=False)
            tx.all("UPDATE notices_links_used SET seen = 1 WHERE seen = 0")
            return _cases(tx)

        return await self._engine.write(job)

    async def save(self, batch: ReclaimBatch, *, term: int) -> None:
        """Save all of it, or NotLeader if a later term has begun."""

        def job(tx: Transaction) -> None:
            _hold(tx, term)
            _save(tx, batch)

        await self._engine.write(job)

    async def stop(self, by: str, entry: AuditEntry, *, term: int | None) -> None:
        """Stop or, with an empty `by`, start the machine; it survives a restart.

        None as the term: a replica that need not lead stops the machine. No attempt is recorded from then on, so the
        leader sends nothing, though it may not have read the switch yet.
        """

        def job(tx: Transaction) -> None:
            if term is not None:
                _hold(tx, term)
            tx.all("UPDATE reclaim_machine SET stopped_by = :by WHERE id = 1", by=by)
            _record(tx, [entry])

        await self._engine.write(job)

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def due(self, now: UnixTime, *, most: int) -> list[Call]:
        """The calls that wait and are due, the longest waiting first; without notices."""
        return await self._due("NOT LIKE", now, most)

    async def due_notices(self, now: UnixTime, *, channel: str = "", most: int) -> list[Call]:
        """The notices of a channel, or of all, that wait and are due. They never delay another call."""
        begin = f"{NOTICE}{channel}/" if channel else NOTICE
        found = await self._due("LIKE", now, most, begin)
        return [call for call in found if call.key.startswith(begin)]  # an underscore is a wildcard for LIKE

    async def _due(self, notices: str, now: UnixTime, most: int, begin: str = NOTICE) -> list[Call]:
        rows = await self._engine.read(
            lambda tx: tx.all(
                f"SELECT body FROM reclaim_calls WHERE status = 'waiting' AND next_at <= :now "
                f"AND key {notices} :notices ORDER BY next_at, key LIMIT :most",
                now=float(now),
                notices=f"{begin}%",
                most=most,
            )
        )
        return [msgspec.json.decode(body, type=Call) for (body,) in rows]

    async def calls_of(self, case_id: str) -> list[Call]:
        rows = await self._engine.read(
            lambda tx: tx.all("SELECT body FROM reclaim_calls WHERE case_id = :id ORDER BY key", id=case_id)
        )
        return [msgspec.json.decode(body, type=Call) for (body,) in rows]

    async def attempt(self, call: Call, batch: ReclaimBatch | None = None, *, term: int) -> bool:
        """Record an attempt before it is made; False: the call no longer waits, or the machine is stopped.

        `batch` is saved with it. NotLeader in a later term.
        """

        def job(tx: Transaction) -> bool:
            _hold(tx, term)
            if call.kind != "restore" and _stopped(tx):
                return False
            recorded = _update(tx, call, only="waiting")
            if recorded and batch is not None:
                _save(tx, batch)
            return recorded

        return await self._engine.write(job)

    async def settle(self, call: Call, batch: ReclaimBatch, *, term: int) -> None:
        """Record how an attempt ended, and what follows from it for its case."""

        def job(tx: Transaction) -> None:
            _hold(tx, term, caught_up=False)  # what was done outside is recorded in any case
            _update(tx, call)
            _save(tx, batch)

        await self._engine.write(job)

    async def attempt_all(self, calls: Sequence[Call], *, term: int) -> list[Call]:
        """Record one attempt of several calls before it is made; the calls that still wait; none while stopped."""

        def job(tx: Transaction) -> list[Call]:
            _hold(tx, term)
            if _stopped(tx):
                return []
            return [call for call in calls if _update(tx, call, only="waiting")]

        return await self._engine.write(job)

    async def settle_all(self, calls: Sequence[Call], batch: ReclaimBatch, *, term: int) -> None:
        """Record how an attempt of several calls ended. One that was cancelled meanwhile stays cancelled."""

        def job(tx: Transaction) -> None:
            _hold(tx, term)
            for call in calls:
                _update(tx, call, only="waiting")
            _save(tx, batch)

        await self._engine.write(job)

    # ── links of owners ──────────────────────────────────────────────────────────────────────────────────────────

    async def used_at(self, link: SignedLink) -> UnixTime | None:
        """When a link was used; None: not yet."""
        rows = await self._engine.read(
            lambda tx: tx.all("SELECT at FROM notices_links_used WHERE nonce = :nonce", nonce=link.nonce)
        )
        return float(rows[0][0]) if rows else None

    async def case(self, case_id: str) -> Case | None:
        rows = await self._engine.read(lambda tx: tx.all("SELECT body FROM reclaim_cases WHERE id = :id", id=case_id))
        return _case(rows[0][0]) if rows else None

    async def answered(self, case_id: str, decide: Callable[[Case | None], ReclaimBatch]) -> None:
        """An owner's answer through a replica that does not lead.

        Until the leader has read it, the leader's writes are refused: what an owner said on any replica holds at once.
        """

        def job(tx: Transaction) -> None:
            tx.all("UPDATE reclaim_machine SET term = term WHERE id = 1")  # after the leader's transaction, or before
            rows = tx.all("SELECT body FROM reclaim_cases WHERE id = :id", id=case_id)
            _save(tx, decide(_case(rows[0][0]) if rows else None), seen=False)

        await self._engine.write(job)

    # ── audit ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def audit(
        self,
        *,
        case_id: str = "",
        namespaces: frozenset[str] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> AuditPage:
        """Entries, newest first; only of these namespaces, if given."""
        limit = min(limit, _PAGE_MOST)

        def job(tx: Transaction) -> list[Values]:
            where, values = _conditions(case_id, namespaces, before)
            return tx.all(
                f"SELECT number, body FROM reclaim_audit {where} ORDER BY number DESC LIMIT :most",
                most=limit + 1,
                **values,
            )

        rows = await self._engine.read(job)
        entries = tuple(
            msgspec.structs.replace(msgspec.json.decode(body, type=AuditEntry), number=number)
            for number, body in rows[:limit]
        )
        return AuditPage(entries=entries, next_before=entries[-1].number if len(rows) > limit else None)


def _stopped(tx: Transaction) -> bool:
    return bool(tx.all("SELECT 1 FROM reclaim_machine WHERE id = 1 AND stopped_by <> ''"))


def _unseen(tx: Transaction) -> bool:
    return bool(tx.all("SELECT 1 FROM notices_links_used WHERE seen = 0 LIMIT 1"))


def _hold(tx: Transaction, term: int, *, caught_up: bool = True) -> None:
    """Lock the machine's row for this transaction; NotLeader if a later term has begun.

    `caught_up`: NotLeader, too, if the writer does not know yet what an owner answered through another replica.
    """
    if not tx.all("UPDATE reclaim_machine SET term = term WHERE id = 1 AND term = :term RETURNING term", term=term):
        raise NotLeader("another replica takes GPUs back now")
    if caught_up and _unseen(tx):
        raise NotLeader("an owner answered through another replica, and the answer is not read yet")


def _save(tx: Transaction, batch: ReclaimBatch, *, seen: bool = True) -> None:
    if batch.used is not None:
        _use(tx, batch.used, max((one.at for one in batch.audit), default=0.0), seen=seen)
    if batch.cases:
        tx.upsert(_CASES, [(case.id, case.state, _text(case)) for case in batch.cases])
    # Before new calls: a case that ends may still get a notice.
    cancelled = [cancelled_entry(call, _cause(tx, id_, batch)) for id_ in batch.cancel for call in _cancel(tx, id_)]
    if batch.calls:
        tx.upsert(_CALLS, [(one.key, one.case_id, one.status, one.next_at, _text(one)) for one in batch.calls])
    for case_id in batch.forget:
        tx.all("DELETE FROM reclaim_calls WHERE case_id = :id", id=case_id)
        tx.all("DELETE FROM reclaim_cases WHERE id = :id", id=case_id)
    _record(tx, batch.audit)
    _record(tx, cancelled)
    if batch.memory is not None:
        tx.all("UPDATE reclaim_machine SET memory = :memory WHERE id = 1", memory=batch.memory)


def _use(tx: Transaction, link: SignedLink, at: UnixTime, *, seen: bool) -> None:
    """Note that a link was used. The database refuses a second use, however many come at once."""
    tx.all("DELETE FROM notices_links_used WHERE expires < :now AND seen = 1", now=float(at))
    done = tx.all(
        "INSERT INTO notices_links_used (nonce, case_id, at, expires, seen) VALUES (:nonce, :id, :at, :expires, :seen) "
        "ON CONFLICT (nonce) DO NOTHING RETURNING nonce",
        nonce=link.nonce,
        id=link.case_id,
        at=float(at),
        expires=float(link.expires),
        seen=int(seen),
    )
    if not done:
        raise LinkUsed("this link was used before")


def _cancel(tx: Transaction, case_id: str) -> list[Call]:
    """The calls of the case that waited; they wait no longer."""
    rows = tx.all("SELECT body FROM reclaim_calls WHERE case_id = :id AND status = 'waiting' ORDER BY key", id=case_id)
    calls = [msgspec.json.decode(body, type=Call) for (body,) in rows]
    for call in calls:
        _update(tx, msgspec.structs.replace(call, status="cancelled"))
    return calls


def cancelled_entry(call: Call, cause: AuditEntry) -> AuditEntry:
    """The entry of a call that was cancelled, by the same actor and for the same reason as its cause."""
    told = {"key": call.key, "gpu_id": call.gpu_id, "attempts": call.attempts}
    return msgspec.structs.replace(
        cause, what="call_cancelled", before="", after="", detail=msgspec.json.encode(told).decode()
    )


def _cause(tx: Transaction, case_id: str, batch: ReclaimBatch) -> AuditEntry:
    """Why calls of a case are cancelled: the case's own entry, or that of a case that is settled together with it."""
    own = next((one for one in batch.audit if one.case_id == case_id), None)
    if own is not None:
        return own
    rows = tx.all("SELECT body FROM reclaim_cases WHERE id = :id", id=case_id)
    case = msgspec.json.decode(rows[0][0], type=Case) if rows else None
    other = next(iter(batch.audit), None) or AuditEntry(at=case.since if case else 0.0, actor="", what="")
    return msgspec.structs.replace(
        other, case_id=case_id, namespace=case.namespace if case else "", pod=case.pod if case else ""
    )


def _update(tx: Transaction, call: Call, *, only: CallStatus | None = None) -> bool:
    condition = "" if only is None else " AND status = :only"
    values = {} if only is None else {"only": only}
    return bool(
        tx.all(
            "UPDATE reclaim_calls SET status = :status, next_at = :next_at, body = :body "
            f"WHERE key = :key{condition} RETURNING key",
            key=call.key,
            status=call.status,
            next_at=float(call.next_at),
            body=_text(call),
            **values,
        )
    )


def _record(tx: Transaction, entries: Iterable[AuditEntry]) -> None:
    rows = [(one.at, one.case_id, one.namespace, _text(one)) for one in entries]
    if rows:
        tx.insert("reclaim_audit", ("at", "case_id", "namespace", "body"), rows)


def _conditions(case_id: str, namespaces: frozenset[str] | None, before: int | None) -> tuple[str, dict[str, object]]:
    parts, values = [], dict[str, object]()
    if case_id:
        parts.append("case_id = :id")
        values["id"] = case_id
    if before is not None:
        parts.append("number < :before")
        values["before"] = before
    if namespaces is not None:
        names = {f"ns{number}": name for number, name in enumerate(sorted(namespaces))}
        parts.append(f"namespace IN ({', '.join(f':{key}' for key in names)})" if names else "1 = 0")
        values |= names
    return ("WHERE " + " AND ".join(parts) if parts else ""), values


def _cases(tx: Transaction) -> dict[str, Case]:
    return {key: _case(body) for key, body in tx.all("SELECT id, body FROM reclaim_cases")}


_DECODER = msgspec.json.Decoder(Case)


def _case(body: str) -> Case:
    """A stored case. Older releases left the cases of a dry run in `acting`, though nothing was done."""
    case = _DECODER.decode(body)
    if case.state == "acting" and case.dry_run:
        return msgspec.structs.replace(case, state="would_act", next_at=None)
    return case


def _text(value: Struct) -> str:
    return msgspec.json.encode(value).decode()
