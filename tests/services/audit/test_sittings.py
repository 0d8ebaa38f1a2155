"""What is read together is of one time."""

from typing import Any

from vgpuscope.model.consistency import PublicAnswer
from vgpuscope.services.audit.sittings import _joined


class Replaying:
    """A service whose answers are given; the time since the analyzer read the cluster is that of the next answer."""

    name = "replayed"

    def __init__(self, *ages: float) -> None:
        self.ages, self.asked = list(ages), 0

    @property
    def shapes(self) -> Any:
        return type("Shapes", (), {"defined": frozenset[str]()})

    async def json(self, path: str) -> Any:
        return {"timestamp": "2026-11-19T12:00:00Z"}

    async def read(self, path: str) -> PublicAnswer:
        self.asked += 1
        age = self.ages.pop(0) if path.endswith("overview") else 0.0
        body = {"parts": [{"name": "cluster", "age_seconds": age}]}
        return PublicAnswer(service="replayed", surface=f"GET {path}", kind="", body=body)

    def numbers(self, answer: PublicAnswer) -> list[Any]:
        return []

    async def page(self) -> list[Any]:
        return []


async def test_what_the_analyzer_kept_of_the_cluster_for_longer_is_read_again():
    analyzer, cluster = Replaying(0.2, 0.0), Replaying()
    joined = await _joined(analyzer, cluster)  # type: ignore[arg-type]
    assert len(joined.answers) == 5
    assert analyzer.asked == 8


async def test_what_stays_older_than_the_first_look_is_not_compared():
    analyzer, cluster = Replaying(0.1, 0.5, 1.0, 2.0), Replaying()
    assert (await _joined(analyzer, cluster)).answers == ()  # type: ignore[arg-type]
