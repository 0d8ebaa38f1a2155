"""`vgpuscope nodes`."""

from vgpuscope.commands.inventory import inventory_command

COMMAND = inventory_command(
    "nodes",
    summary="list nodes: allocations, free capacity, findings",
    description="Print one row per node: GPUs, allocated memory, the largest request that still fits, and findings. "
    "Reads from the cluster exporter.",
)
