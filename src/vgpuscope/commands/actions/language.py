"""The language in which a client speaks."""

from collections.abc import Mapping

from vgpuscope.model.words import Language


def language_of(chosen: str | None, environ: Mapping[str, str]) -> Language:
    """The language to speak: as chosen, or that of the locale."""
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if (chosen or locale[:2].lower()) == "zh" else "en"
