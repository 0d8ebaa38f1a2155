"""Hooks of MkDocs: pages from outside docs/, the language of a page, and its counterpart in the other language."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
FROM_ROOT = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "MAINTAINERS.md": "maintainers.md",
    "RELEASING.md": "releasing.md",
    "SECURITY.md": "vulnerabilities.md",
}
CHINESE = ".zh-CN.md"
HOMES = {"en": "index.md", "zh": "index.zh-CN.md"}
NAMES = {"en": "English", "zh": "简体中文"}

_PART = re.compile(  # a block of code, a link (not a picture), or a span of code
    r"(?P<block>^```.*?^```$)|(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)|(?P<span>`[^`\n]+`)", re.M | re.S
)
_OTHER_HOST = re.compile(r"[a-z][a-z0-9+.-]*:")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the repository's root, and lets every decision of docs/adr be a page without a place in nav."""
    for name, page in FROM_ROOT.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    for file in files.documentation_pages():
        if _in_no_list(file.src_uri):
            file.inclusion = file.inclusion.NOT_IN_NAV
    return files


def _in_no_list(uri: str) -> bool:
    """Pages that a page lists, and the navigation does not: one for each decision, one for each alert."""
    folder = PurePosixPath(uri).parent
    return folder.parts[:1] in {("adr",), ("runbooks",)} and not PurePosixPath(uri).name.startswith(("README", "index"))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they work on the site. A link to a file that the site does not have becomes its text."""
    del config
    home = "" if page.file.src_uri in FROM_ROOT.values() else "docs"

    def on_site(found: re.Match[str]) -> str:
        if found["span"]:
            return found["span"].replace("\\|", "|")  # GitHub needs the backslash in a table, Python-Markdown shows it
        name, mark, anchor = (found["target"] or "").partition("#")
        if not name or _OTHER_HOST.match(name):
            return found[0]
        path = _normal(PurePosixPath(home, *_folder(page, home), name))
        uri = FROM_ROOT.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(uri) is None:
            return found["text"] if (ROOT / path).exists() else found[0]
        return f"[{found['text']}]({_relative(uri, page)}{mark}{anchor})"

    return _PART.sub(on_site, _indented(markdown))


def _indented(markdown: str) -> str:
    """What belongs to an item of a numbered list, indented by four spaces: GitHub takes three, Python-Markdown not."""
    blocks = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)  # those that begin at the margin stay
    return "".join(
        block if number % 2 else re.sub(r"^ {3}(?=\S| +\S)", "    ", block, flags=re.M)
        for number, block in enumerate(blocks)
    )


def _folder(page: Page, home: str) -> tuple[str, ...]:
    return PurePosixPath(page.file.src_uri).parent.parts if home else ()


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _relative(uri: str, page: Page) -> str:
    up = len(PurePosixPath(page.file.src_uri).parent.parts)
    return "../" * up + uri


def language(uri: str) -> str:
    """The language of a page, by its name (faq.zh-CN.md) or its folder (runbooks/zh)."""
    return "zh" if uri.endswith(CHINESE) or PurePosixPath(uri).parent.name == "zh" else "en"


def counterpart(uri: str, wanted: str, known: Any) -> str:
    """The same page in the wanted language; the home page of that language where there is none."""
    if language(uri) == wanted:
        return uri
    path = PurePosixPath(uri)
    if wanted == "zh":
        candidates = (uri.removesuffix(".md") + CHINESE, str(path.parent / "zh" / path.name))
    else:
        candidates = (uri.removesuffix(CHINESE) + ".md", uri.replace("/zh/", "/"))
    return next((one for one in candidates if one in known and one != uri), HOMES[wanted])


def on_page_context(context: dict[str, Any], *, page: Page, config: MkDocsConfig, nav: Any) -> dict[str, Any]:
    """The frame of a page in the page's language. MkDocs draws one page after another, so the settings may change."""
    del nav
    uri = page.file.src_uri
    known = _FILES
    config.theme["language"] = language(uri)
    config.extra["alternate"] = [
        {"name": name, "link": known[counterpart(uri, lang, known)], "lang": lang} for lang, name in NAMES.items()
    ]
    return context


_FILES: dict[str, str] = {}


def on_env(env: Any, *, config: MkDocsConfig, files: Files) -> None:
    """Keeps the addresses of all pages for the language switch."""
    del env, config
    _FILES.clear()
    _FILES.update({file.src_uri: file.url for file in files.documentation_pages()})
