"""`python -m bench.console_open [GPUS]`: what open consoles cost the analyzer, without a browser; nothing is saved.

The requests are those that the overview sent in the last full run of `python -m bench console`.
"""

import sys
from pathlib import Path

import msgspec

from bench.console_measure import ConsoleEffort, Consoles, run_consoles
from bench.measure import SPEED

_RESULTS = Path(__file__).parent / "results" / "console.json"


def main() -> int:
    """Measure, and print the figures; exit code 1 if the target is missed."""
    effort = ConsoleEffort(gpus=int(sys.argv[1])) if len(sys.argv) > 1 else ConsoleEffort()
    last = msgspec.json.decode(_RESULTS.read_bytes())["figures"]["consoles"]
    found: Consoles = run_consoles(effort, tuple(last["paths"]))
    print(msgspec.json.encode(found).decode())
    print(
        f"{effort.gpus} GPUs, {found.number} consoles: {100 * found.share:.2f} % of a core in {found.seconds:.0f} s; "
        f"other work on the machine left {SPEED.share():.0%} of its speed"
    )
    return 0 if found.share <= 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
