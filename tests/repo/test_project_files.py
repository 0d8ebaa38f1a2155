"""The files by which others join: who reviews what, what is updated, and who answers."""

import re

import pytest
import yaml

from tests.paths import REPOSITORY

GITHUB = REPOSITORY / ".github"
OWNED = [line.split() for line in (GITHUB / "CODEOWNERS").read_text().splitlines() if line and line[0] != "#"]


@pytest.mark.parametrize("row", OWNED, ids=lambda row: row[0])
def test_every_row_of_codeowners_is_about_files_that_exist_and_names_a_team(row):
    pattern, *owners = row
    if pattern.startswith("/"):
        assert (REPOSITORY / pattern.strip("/")).exists()
    else:
        assert any(True for _ in REPOSITORY.glob("docs/" + pattern)) or pattern == "*"
    assert owners
    assert all(re.fullmatch(r"@vgpuscope/[a-z]+", owner) for owner in owners)


def test_every_change_has_an_owner():
    assert OWNED[0] == ["*", "@vgpuscope/maintainers"]


def test_everything_that_is_locked_is_updated():
    """npm, Go and Docker by Dependabot; Python by the workflow; Kubernetes by a person."""
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    places: dict[str, list[str]] = {}
    for update in updates:
        assert update["schedule"]["interval"] in {"weekly", "monthly"}
        places[update["package-ecosystem"]] = update.get("directories") or [update["directory"]]
    assert places["npm"] == ["/web"]
    assert places["docker"] == ["/"]
    modules = {f"/{path.parent.relative_to(REPOSITORY)}" for path in REPOSITORY.glob("tools/**/go.mod")}
    of_kubernetes = {place for place in modules if place.startswith(("/tools/controlplane", "/tools/cluster"))}
    assert set(places["gomod"]) == modules - of_kubernetes
    assert "make lock" in (GITHUB / "workflows/dependencies.yml").read_text()


@pytest.mark.parametrize(
    "name", ["CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "MAINTAINERS.md", "RELEASING.md", "SECURITY.md"]
)
def test_a_page_for_contributors_is_reachable_from_another(name):
    pages = [path for path in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")) if path.name != name]
    assert any(re.search(rf"\]\((?:\.\./)?{re.escape(name)}[)#]", path.read_text()) for path in pages)
