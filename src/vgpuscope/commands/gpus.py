"""`vgpuscope gpus`."""

from vgpuscope.commands.inventory import inventory_command

COMMAND = inventory_command(
    "gpus",
    summary="list GPUs: model, health, allocation, holders",
    description="Print one row per GPU of the cluster: model, health, allocated memory and cores, and the pods that "
    "hold it. Reads from the cluster exporter.",
)
