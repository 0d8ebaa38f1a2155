"""Everything that the console needs from the scheduler extender: its decisions, and what if."""

from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from vgpuscope.model.decision_answers import DecisionBody, FitAnswer
from vgpuscope.model.errors import Forbidden, LoginFailed, QueryForbidden, SourceDown
from vgpuscope.model.quantity import Seconds
from vgpuscope.sources.clients.extender import EXTENDER, FIT
from vgpuscope.sources.clients.served_api import ServedApi

V = TypeVar("V")
NEWEST = 1000  # decisions of the list
_OF_POD = 50  # decisions about one pod


class ExtenderPart(ServedApi[Any]):
    """A client of one extender."""

    def __init__(self, url: str, *, token: str | None = None, timeout: Seconds = 30.0) -> None:
        super().__init__(EXTENDER, url, content=Any, timeout=timeout, token=token)
        self._last: tuple[DecisionBody, ...] = ()

    async def read(self) -> tuple[DecisionBody, ...]:
        """The newest decisions, without the verdicts on nodes; the same object if nothing was decided since."""
        found = await self._decisions(limit=NEWEST, nodes="false")
        if found != self._last:
            self._last = found
        return self._last

    async def of_pod(self, namespace: str, pod: str) -> tuple[DecisionBody, ...]:
        """The decisions about one pod, with the verdicts on nodes."""
        return await self._decisions(namespace=namespace, pod=pod, limit=_OF_POD)

    async def fit_pod(self, namespace: str, pod: str) -> FitAnswer:
        """What would make a pod fit that the extender knows."""
        query = urlencode({"namespace": namespace, "pod": pod})
        return await self._asked("GET", f"{FIT.path}?{query}", FitAnswer)

    async def fit(self, manifest: object, replicas: int) -> FitAnswer:
        """Whether the pod of a manifest would fit."""
        return await self._asked("POST", FIT.path, FitAnswer, {"pod": manifest, "replicas": replicas})

    async def _decisions(self, **asked: object) -> tuple[DecisionBody, ...]:
        return await self._asked("GET", f"{EXTENDER.path}?{urlencode(asked)}", tuple[DecisionBody, ...])

    async def _asked(self, method: Literal["GET", "POST"], path: str, content: type[V], body: object = None) -> V:
        try:
            return await self.ask(method, path, content, body)
        except (Forbidden, LoginFailed) as e:
            hint = "Set analyzer.scrape_token to a bearer token of the extender."
            raise QueryForbidden(str(e), hint=hint) from e
        except SourceDown as e:
            hint = "Check analyzer.extender_url, and whether `vgpuscope extender` runs there."
            raise SourceDown(str(e), hint=hint) from e
