"""Mistakes that are made on purpose are found: by the plan of the fleet, or by the auditor."""

import pytest

from tests.audit.breaks import MISTAKES
from tests.audit.plan import rich
from tests.audit.stage import Caller, World, audited, world
from tests.audit.test_worlds import differences

PARTS = 4  # each with a fleet of its own


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_mistake_is_found(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    missed = []
    callers: tuple[Caller, ...] = ("all", "mine")
    async with world(rich(46, hours=3)) as found:
        usual = {caller: await _findings(found, caller) for caller in callers}
        for mistake, finder in list(MISTAKES.items())[part::PARTS]:
            caller: Caller = "mine" if finder == "scope" else "all"
            with monkeypatch.context() as patch:
                mistake(patch)
                new = await _findings(found, caller) - usual[caller]
            if not any(finding.startswith(finder) for finding in new):
                missed.append(f"{mistake.__name__}: not found by {finder!r}, but by {sorted(new)}")
    assert missed == []


async def _findings(found: World, caller: Caller) -> set[str]:
    """What is found now, without values."""
    await found.renew()
    plain = {f"plan: {one.partition(' is ')[0]}" for one in await differences(found)}
    return plain | {
        f"{one.check} {one.subject}: {one.first.surface} {one.first.figure}, {one.second.surface}"
        for one in (await audited(found, caller=caller)).differences
    }
