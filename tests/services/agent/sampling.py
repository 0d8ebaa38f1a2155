"""A sampler of regions and processes in a folder of the test, without a driver or an agent around it."""

from pathlib import Path
from typing import Any

from vgpuscope.services.agent.sampler import Sampler


def bare_sampler(root: Path, **more: Any) -> Sampler:
    """A sampler of `root/containers` and `root/proc` that does not sleep."""
    given: dict[str, Any] = {"driver_deadline": 1.0, "sleep": lambda _: None}
    return Sampler(
        node="n1",
        families=["native"],
        containers_dir=str(root / "containers"),
        proc_root=str(root / "proc"),
        window=60.0,
        **(given | more),
    )
