"""The control interface of gpu-oour: one signed POST for each call."""

from collections.abc import Callable

from vgpuscope.config.reclaim import ControlConfig
from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.reclaim import Call
from vgpuscope.services.analyzer.reclaim.dependencies import CallResult, CallSender
from vgpuscope.sinks.webhook import Webhook
from vgpuscope.version import __version__


def control_sender(config: Callable[[], ControlConfig]) -> CallSender:
    """Sends calls to the address that the settings name at that moment."""

    async def send(call: Call, *, now: UnixTime) -> CallResult:
        control = config()
        agent = f"vgpuscope/{__version__}"
        async with Webhook(control.api_url, secret=control.secret, timeout=control.timeout, agent=agent) as webhook:
            await webhook.send(call.body.encode(), key=call.key, now=now)
        return CallResult()

    return send
