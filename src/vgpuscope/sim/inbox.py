"""A channel of notices, as a webhook: what is sent there is shown, and kept for whoever asks.

POST /   a message: JSON with a title and a text; GET /   the messages that came, the newest last
"""

from collections import deque
from collections.abc import Callable

import msgspec
from msgspec import Struct

from vgpuscope.sim.posts import Answer, Asked

_KEPT = 100  # messages


class Message(Struct, frozen=True, kw_only=True):
    """The fields of a message that are used."""

    title: str = ""
    message: str = ""


class Inbox:
    """Takes messages; `show` gets the heading of each."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self.messages: deque[Message] = deque(maxlen=_KEPT)

    def answer(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            return Answer(200, {"messages": list(self.messages)})
        if asked.method != "POST":
            return Answer(405, {"error": "POST a message, or GET the list of messages"})
        try:
            message = msgspec.json.decode(asked.body, type=Message)
        except msgspec.DecodeError as e:
            return Answer(400, {"error": f"the body is no message: {e}"})
        self.messages.append(message)
        first = message.message.strip().splitlines()[:1]
        self._show(message.title or (first[0] if first else "a message without text"))
        return Answer(200, {"accepted": True})
