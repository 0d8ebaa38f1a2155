"""Settings of the language model's opinion: gpu-oour's keys and variables, and ours for what it lacks."""

from typing import Annotated

from msgspec import Meta, Struct

from vgpuscope.model.opinion import Provider
from vgpuscope.model.quantity import Ratio, Seconds
from vgpuscope.model.words import Language


class AiConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Opinion of a language model. It can explain a verdict, or hold reclaim back; it never makes a GPU idle."""

    enabled: Annotated[
        bool, Meta(description="Ask a language model for an opinion.", extra={"aliases": ("AI_ENABLED",)})
    ] = False
    provider: Annotated[
        Provider | None,
        Meta(
            description="Protocol of the language model. compatible: any server with OpenAI's chat completions, such "
            "as vLLM or Ollama.",
            extra={"unset": "derived from ai.api_url; without a URL, from ai.model (claude-…, gpt-…)"},
        ),
    ] = None
    api_url: Annotated[
        str,
        Meta(
            description="URL of the language model: its base, or the full address as in gpu-oour.",
            extra={"form": "url_if_any", "aliases": ("AI_API_URL",), "unset": "that of the provider"},
        ),
    ] = ""
    api_key: Annotated[
        str,
        Meta(
            description="API key of the language model.",
            extra={"aliases": ("AI_API_KEY",), "secret": True, "unset": "none"},
        ),
    ] = ""
    api_key_file: Annotated[
        str | None,
        Meta(
            description="File with the API key; read before every round of questions. ai.api_key takes precedence.",
            extra={"unset": "none"},
        ),
    ] = None
    api_version: Annotated[
        str,
        Meta(description="API version of Azure OpenAI. A version in ai.api_url takes precedence."),
    ] = "2024-10-21"
    model: Annotated[
        str,
        Meta(
            description="Name of the language model; the deployment in Azure OpenAI.",
            extra={"aliases": ("AI_MODEL",)},
        ),
    ] = "gpt-4"
    threshold: Annotated[
        Ratio,
        Meta(
            ge=0,
            le=1,
            description="Minimum confidence of an opinion that holds reclaim back, 0-1. Below it, an opinion is only "
            "shown.",
        ),
    ] = 0.7
    required: Annotated[
        bool,
        Meta(
            description="Take no GPU back without an opinion. If false, the numbers decide when the model does not "
            "answer, and the audit log records it.",
        ),
    ] = False
    language: Annotated[
        Language,
        Meta(
            description="Language of reasons and recommendations where a field has one language only: `/results` and "
            "control calls. The console and notices use their reader's language.",
        ),
    ] = "zh"
    send_names: Annotated[
        bool,
        Meta(
            description="Send the names of namespaces, pods, containers and owners. They help the model; numbers are "
            "sent in any case.",
        ),
    ] = True
    max_tokens: Annotated[
        int,
        Meta(
            ge=1,
            le=10**6,
            description="Maximum length of an answer, in tokens.",
            extra={"aliases": ("AI_MAX_TOKENS",)},
        ),
    ] = 2000
    timeout: Annotated[
        Seconds,
        Meta(
            ge=1,
            le=600,
            description="Time within which an answer must be complete.",
            extra={"form": "duration"},
        ),
    ] = 30.0
    retry_times: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Maximum number of requests for one question.",
            extra={"aliases": ("AI_RETRY_TIMES",)},
        ),
    ] = 3
    retry_delay: Annotated[
        Seconds,
        Meta(
            ge=0,
            le=600,
            description="Time before the second request for a question; doubled before each further one.",
            extra={"form": "duration", "aliases": ("AI_RETRY_DELAY",)},
        ),
    ] = 2.0
    concurrency: Annotated[int, Meta(ge=1, le=64, description="Requests that run at the same time.")] = 4
    max_per_cycle: Annotated[
        int,
        Meta(
            ge=0,
            le=10**6,
            description="Maximum number of questions after one analysis. /analyze?use_ai=true asks about every GPU, "
            "up to ai.max_per_day.",
        ),
    ] = 20
    max_per_day: Annotated[int, Meta(ge=0, le=10**7, description="Maximum number of requests in any 24 hours.")] = 1000
    price_input: Annotated[
        Annotated[float, Meta(ge=0, le=1e9)] | None,
        Meta(
            description="Price of a million input tokens, for the cost metric.",
            extra={"unset": "not known: no cost is reported"},
        ),
    ] = None
    price_output: Annotated[
        Annotated[float, Meta(ge=0, le=1e9)] | None,
        Meta(
            description="Price of a million output tokens, for the cost metric.",
            extra={"unset": "not known: no cost is reported"},
        ),
    ] = None
