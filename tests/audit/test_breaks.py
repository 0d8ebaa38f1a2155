"""Mistakes that are made on purpose are found: by the plan of the fleet, or by the auditor."""

import pytest

from tests.audit.breaks import MISTAKES
from tests.audit.plan import rich
from tests.audit.stage import World, audited, world
from tests.audit.test_worlds import differences


async def test_every_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = []
    async with world(rich(46, hours=3)) as found:
        usual = await _findings(found)
        for mistake, finder in MISTAKES.items():
            with monkeypatch.context() as patch:
                mistake(patch)
                new = await _findings(found) - usual
            if not any(finding.startswith(finder) for finding in new):
                missed.append(f"{mistake.__name__}: not found by {finder!r}, but by {sorted(new)}")
    assert missed == []


async def _findings(found: World) -> set[str]:
    """What is found now, without values."""
    await found.renew()
    plain = {f"plan: {one.partition(' is ')[0]}" for one in await differences(found)}
    reports = [await audited(found, caller=caller) for caller in ("all", "mine")]
    return plain | {
        f"{one.check} {one.subject}: {one.first.surface} {one.first.figure}, {one.second.surface}"
        for report in reports
        for one in report.differences
    }
