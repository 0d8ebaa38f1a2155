"""All files of alerts, in the order in which the documentation lists them."""

from tools.alerting import handbook, hardware, reclaim, scheduling, services, usage
from tools.alerting.alert import Alert, AlertFile

FILES: tuple[AlertFile, ...] = (
    handbook.FILE,
    usage.FILE,
    hardware.FILE,
    services.FILE,
    scheduling.FILE,
    reclaim.FILE,
)


def by_name() -> dict[str, tuple[Alert, ...]]:
    """The alerts by name: one name can have several rules, told apart by a label."""
    found: dict[str, tuple[Alert, ...]] = {}
    for alert in (alert for file in FILES for alert in file.alerts):
        found[alert.name] = (*found.get(alert.name, ()), alert)
    return found
