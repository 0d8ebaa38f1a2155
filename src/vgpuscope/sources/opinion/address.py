"""Where a model is asked: the provider and its base address, told from what was configured.

gpu-oour's users have the full address of one endpoint (…/v1/chat/completions). The SDKs want its base.
"""

from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.model.opinion import Provider

_AZURE_HOSTS = (".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com", ".openai.azure.us")
_DEPLOYMENTS = "/openai/deployments/"
_CHAT, _MESSAGES = "/chat/completions", "/v1/messages"
_OFFICIAL: dict[Provider, str] = {"openai": "https://api.openai.com", "anthropic": "https://api.anthropic.com"}
_MAKERS: tuple[tuple[str, Provider], ...] = (  # by the beginning of a model's name
    ("claude-", "anthropic"),
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
)


class ModelAddress(NamedTuple):
    """The address as the SDK of the provider wants it."""

    provider: Provider
    base: str
    query: dict[str, str]  # of the configured address
    deployment: str = ""  # Azure: told by the address; "": the model's name


def address_of(provider: Provider | None, url: str, *, model: str = "") -> ModelAddress:
    """The provider and its base address; without a URL, those of the model's maker.

    ConfigInvalid if there is no address to ask.
    """
    if not url:
        provider = provider or next((maker for name, maker in _MAKERS if model.startswith(name)), None)
        url = _OFFICIAL.get(provider or "compatible", "")
    parts = _split(url)
    if not parts.hostname:
        raise ConfigInvalid(
            f"ai.api_url: missing, and the model {model[:80]!r} does not tell whom to ask",
            hint="Set the URL of the language model, or ai.provider to openai or anthropic.",
        )
    chosen = provider or _told(parts)
    query = dict(parse_qsl(parts.query))
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if chosen == "azure":
        return _azure(origin, path, query)
    if chosen == "anthropic":
        return ModelAddress(chosen, origin + path.removesuffix(_MESSAGES).removesuffix("/v1"), query)
    return ModelAddress(chosen, origin + (path.removesuffix(_CHAT) or "/v1"), query)


def _told(parts: SplitResult) -> Provider:
    host = parts.hostname or ""
    if host.endswith(_AZURE_HOSTS) or _DEPLOYMENTS in parts.path:
        return "azure"
    if host == "api.openai.com":
        return "openai"
    if host == "api.anthropic.com" or parts.path.rstrip("/").endswith(_MESSAGES):
        return "anthropic"
    return "compatible"


def _azure(origin: str, path: str, query: dict[str, str]) -> ModelAddress:
    """…/openai/deployments/NAME/chat/completions, the resource alone, or the address of its version 1."""
    before, found, after = path.partition(_DEPLOYMENTS)
    if found:
        return ModelAddress("azure", origin + before, query, deployment=after.partition("/")[0])
    path = path.removesuffix(_CHAT)
    if path.endswith("/openai/v1"):
        return ModelAddress("azure", origin + path, query)
    return ModelAddress("azure", origin + path.removesuffix("/openai"), query)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as e:
        raise ConfigInvalid(f"ai.api_url: {e}") from e
