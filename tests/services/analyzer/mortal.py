"""An analyzer as a process of its own, over one idle pod. It can kill itself at a moment of a notice's way.

python -m tests.services.analyzer.mortal STORE CHANNEL_URL [MOMENT]

recorded   the notice is in the store, and nobody has tried to send it
attempted  the attempt is in the store, and nothing was sent
answered   the service took the message, and that is not in the store
settled    that is in the store
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.services.analyzer.analyzing import StubSource, StubSources, kubernetes, reading, track
from tests.services.analyzer.controlling import EAGER, idle_pod
from vgpuscope.services.analyzer.process import Analyzer
from vgpuscope.services.analyzer.settings.settings import Settings
from vgpuscope.services.frame import run
from vgpuscope.store.reclaim import ReclaimStore


def has_notice(batch) -> bool:
    return any(call.kind == "notice" for call in batch.calls)


def delivered(calls, _) -> bool:
    return any(call.status == "delivered" for call in calls)


# moment → method of the store, whether it dies before or after the method's work, which calls of the method count
MOMENTS: dict[str, tuple[str, str, Callable[..., bool]]] = {
    "recorded": ("save", "after", has_notice),
    "attempted": ("attempt_all", "after", bool),
    "answered": ("settle_all", "before", delivered),
    "settled": ("settle_all", "after", delivered),
}


def die_at(moment: str) -> None:
    name, when, counts = MOMENTS[moment]
    method = getattr(ReclaimStore, name)

    async def mortal(self: ReclaimStore, *args: Any, **more: Any) -> Any:
        if when == "before" and counts(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        done = await method(self, *args, **more)
        if when == "after" and counts(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(ReclaimStore, name, mortal)


def main(store: str, url: str, moment: str = "") -> int:
    if moment:
        die_at(moment)
    flags = EAGER | {
        "analyzer.listen": "127.0.0.1:0",
        "analyzer.history": store,
        "log.format": "json",
        "scheduler.interval": 1,
        "control.enabled": True,
        "control.dry_run": False,
        "control.api_url": "http://127.0.0.1:9/nobody",
        "notify.channels": [{"name": "ml", "url": url, "service": "feishu"}],
        "notify.digest": 0.0,
        "reclaim.grace": 3600.0,
    }
    source = StubSource(reading(track(0), idle_pod()))
    with kubernetes(source) as known:
        settings = Settings(flags=flags | known | {"prometheus.url": "http://stub"}, environ={}, file=None)
        sources: Any = StubSources(source)
        return run(lambda: Analyzer(settings, sources=sources), settings.config, settings.config.analyzer, None)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
