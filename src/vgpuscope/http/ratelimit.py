"""A rate limit: a token bucket for each client."""

from collections import OrderedDict

from vgpuscope.model.quantity import Seconds

_CLIENTS = 4096  # clients remembered; the client that has been silent longest is forgotten first


class RateLimiter:
    """One request per interval for each client, and as many at once as the burst allows."""

    def __init__(self, *, clients: int = _CLIENTS) -> None:
        self._clients = clients
        self._left: OrderedDict[str, tuple[float, Seconds]] = OrderedDict()  # requests left, and the time of that count

    def wait(self, client: str, *, interval: Seconds, burst: float, now: Seconds) -> Seconds:
        """0 if the request is allowed (it is then counted), else the seconds to wait. `now` is monotonic."""
        left, at = self._left.pop(client, (float(burst), now))
        left = min(float(burst), left + (now - at) / interval)
        allowed = left >= 1
        self._left[client] = (left - 1 if allowed else left, now)
        if len(self._left) > self._clients:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) * interval
