"""The Dockerfile and .dockerignore, as a container engine reads them."""

import fnmatch
import re
from pathlib import Path


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions in order: name and the rest, continued lines joined, comments removed."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    lines = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(name.upper(), rest.strip()) for name, rest in lines]


def ignored(path: str, rules: list[str]) -> bool:
    """Whether .dockerignore keeps a path out of the context: the last rule that fits decides."""
    out = False
    for rule in rules:
        keep, pattern = rule.startswith("!"), rule.lstrip("!").strip("/")
        parts = Path(path).parts
        if pattern.startswith("**/"):
            fits = any(fnmatch.fnmatch(part, pattern[3:]) for part in parts)
        else:
            fits = any(fnmatch.fnmatchcase("/".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))
        if fits:
            out = not keep
    return out
