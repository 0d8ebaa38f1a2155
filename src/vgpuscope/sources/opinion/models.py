"""The client for the configured model."""

from collections.abc import Callable

from vgpuscope.sources.opinion.anthropic_client import AnthropicClient
from vgpuscope.sources.opinion.client import ModelAccess, ModelClient, sdk
from vgpuscope.sources.opinion.openai_client import OpenAiClient


def open_model(access: ModelAccess, *, hide: Callable[[str], str]) -> ModelClient:
    """Imports the SDK, which takes seconds: call it on a thread. AiSdkAbsent if it is not installed."""
    module = sdk(access.address.provider)
    kind = AnthropicClient if access.address.provider == "anthropic" else OpenAiClient
    return kind(module, access, hide=hide)
