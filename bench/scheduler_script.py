"""One process for one size: place many pods, each of a shape never seen before, on a half-full cluster.

    python -m bench.scheduler_script NODES DECISIONS

After each decision the GPUs are held and given back, as a scheduler does, so the nodes' books change in between. Times
are of the CPU: the machine has other work. They are printed as JSON.
"""

import sys
from random import Random
from time import process_time

import msgspec
from msgspec.structs import replace

from bench.measure import Speed
from bench.scheduler_cluster import SHAPES, half_full
from bench.scheduler_measure import FilterFigures, ShapeFigures
from vgpuscope.logic.scheduler.place import place


def main(nodes: int, decisions: int) -> FilterFigures:
    speed, random = Speed(), Random(nodes)
    state = half_full(nodes, random)
    names = list(state.nodes)
    state.node_infos()
    took: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    fitting: dict[str, int] = dict.fromkeys(SHAPES, 0)
    for number in range(decisions):
        for shape, make in SHAPES.items():
            request = replace(make(random), uid=f"uid-new-{number}")
            began = process_time()
            found = place(state, request, names)
            took[shape].append(process_time() - began)
            fitting[shape] += bool(found.node)
            if found.node:
                state.assume(request, found)
                state.drop_pod(request.uid)
        speed.look()
    shapes = tuple(
        ShapeFigures(shape=shape, fitting=fitting[shape], seconds=tuple(sorted(took[shape]))) for shape in SHAPES
    )
    return FilterFigures(nodes=nodes, decisions=decisions, shapes=shapes, speed=speed.share())


if __name__ == "__main__":
    print(msgspec.json.encode(main(int(sys.argv[1]), int(sys.argv[2]))).decode())
