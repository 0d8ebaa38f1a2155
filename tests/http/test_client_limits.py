"""How often one client may ask."""

import pytest
from starlette.exceptions import HTTPException

from vgpuscope.http.client_limits import ClientLimits


def limits(rate: float, now: list[float]) -> ClientLimits:
    return ClientLimits(rate, clock=lambda: now[0])


def status(limited: ClientLimits, client: str = "10.0.0.9") -> int:
    try:
        limited.check(client)
    except HTTPException as e:
        return e.status_code
    return 200


def test_a_client_may_ask_as_often_as_agreed():
    now = [100.0]
    limited = limits(2, now)
    assert [status(limited) for _ in range(9)] == [200] * 8 + [429]
    assert status(limited, "10.0.0.10") == 200
    with pytest.raises(HTTPException) as refused:
        limited.check("10.0.0.9")
    assert refused.value.headers == {"retry-after": "1"}
    now[0] += 0.5
    assert [status(limited) for _ in range(2)] == [200, 429]


def test_a_slow_rate_says_how_long_to_wait():
    now = [100.0]
    limited = limits(0.1, now)
    status(limited)
    with pytest.raises(HTTPException) as refused:
        limited.check("10.0.0.9")
    now[0] += int(refused.value.headers["retry-after"])
    assert status(limited) == 200


def test_very_many_clients_take_little_memory():
    limited = ClientLimits(1)
    for number in range(10_000):
        status(limited, str(number))
    assert len(limited._limiter._left) <= 4096
