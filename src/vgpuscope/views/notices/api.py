"""What the API says about notices."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from vgpuscope.model.words import Language


class ChannelRow(Struct, frozen=True, kw_only=True):
    """One channel. Its address is a secret and is not shown."""

    name: str
    service: Annotated[str | None, Meta(description="null: the channel cannot be used; `error` says why.")]
    language: Language | None
    state: Annotated[
        Literal["unused", "works", "fails"],
        Meta(description="By the last message since the start of this process."),
    ]
    delivered: int
    failed: int
    delivered_at: Annotated[str | None, Meta(description="The last message that was taken.")]
    failed_at: Annotated[str | None, Meta(description="The last message that was not taken.")]
    error: Annotated[str | None, Meta(description="Why the last message was not taken.")]


class NoticesBody(Struct, frozen=True, kw_only=True):
    """All channels, and what notices lack."""

    channels: tuple[ChannelRow, ...]
    links: Annotated[bool, Meta(description="Whether notices have links by which an owner can answer.")]
    without: Annotated[tuple[str, ...], Meta(description="What is not configured, and what follows from it.")]


class TrialBody(Struct, frozen=True, kw_only=True):
    """A trial message that was taken."""

    channel: str
    service: str
