"""`python -m bench.analyzer_script URL`: a minimal script, as the lower bound of an analysis.

It runs six queries for the means of the window, one after the other on one connection, and applies gpu-oour's formula.
It has no coverage, no maxima, no successive tenants and no verdict.

Input: one JSON order per line, {"at": time, "show": bool}. Output: one JSON answer per line, with seconds of wall time
and CPU, the number of scored series, and the scores if `show` is set.
"""

import json
import sys
import time

import httpx2

from bench.analyzer_fleet import NAMES, WINDOW

_POWER = 250.0  # watts

Scores = dict[str, float]


def scores(client: httpx2.Client, at: float) -> Scores:
    """Score of every series, by GPU and pod."""
    found: dict[str, list[float]] = {}
    for index, name in enumerate(NAMES):
        form = {"query": f'avg_over_time({name}{{pod!=""}}[{WINDOW}s])', "time": f"{at:.3f}"}
        answer = client.post("/api/v1/query", data=form)
        answer.raise_for_status()
        for row in json.loads(answer.content)["data"]["result"]:
            key = f"{row['metric']['UUID']} {row['metric']['pod']}"
            found.setdefault(key, [0.0] * len(NAMES))[index] = float(row["value"][1])
    return {key: _score(*means) for key, means in found.items()}


def _score(util: float, copy: float, used: float, free: float, power: float, _clock: float) -> float:
    memory = min(used / (used + free), 1.0) if used + free else 0.0
    parts = 0.5 * util / 100 + 0.2 * copy / 100 + 0.2 * memory + 0.1 * min(power / _POWER, 1.0)
    return round(100 * parts, 1)


def main() -> None:
    """Execute orders until the input ends."""
    headers = {"Accept-Encoding": "identity"}  # otherwise the time would include Prometheus compressing its answers
    with httpx2.Client(base_url=sys.argv[1], headers=headers, timeout=120, trust_env=False) as client:
        for line in sys.stdin:
            order = json.loads(line)
            began, cpu = time.perf_counter(), time.process_time()
            found = scores(client, order["at"])
            done = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "series": len(found)}
            print(json.dumps(done | ({"scores": found} if order["show"] else {})), flush=True)


if __name__ == "__main__":
    main()
