"""The documentation says what the code does: the README's commands run, the tables are in step."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from app import settings_page
from tests.support.server import Server

_ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_is_the_code_s() -> None:
    page = (_ROOT / "docs/settings.md").read_text()
    assert page == settings_page.page(), "run `python -m app.settings_page`"


def test_the_readme_round_trip_works_as_pasted(server: Server, tmp_path: Path) -> None:
    readme = (_ROOT / "README.md").read_text()
    script = readme.split("<!-- executed by tests/test_docs.py -->")[1].split("```")[1]
    script = script.removeprefix("sh\n").replace("http://127.0.0.1:8080", server.url)
    script = script.replace("/tmp/", f"{tmp_path}/")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    recorded, found, _, last = done.stdout.splitlines()  # each answer on a line of its own
    assert '"admission":"admitted"' in recorded
    assert '"token_count":128' in found
    assert last == "exact"


@pytest.mark.parametrize("page", sorted([_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_kinds_that_are_accepted_unasked_are_in_the_guides() -> None:
    from app.api.schemas.cache import Query

    kinds = Query.model_fields["accept_kinds"].default
    guide, explain = ((_ROOT / "docs" / f"{name}.md").read_text() for name in ("http", "explain"))
    assert f"without it that is {', '.join(f'`{kind}`' for kind in kinds)}" in " ".join(
        guide.split()
    )
    assert all(f"`{kind}`" in explain.split("## ")[0] for kind in kinds)


def test_the_scope_of_explanations_is_in_their_guide() -> None:
    from app.api.access import RIGHTS

    right = RIGHTS["POST", "/v1/explain"]
    assert right is not None
    text = " ".join((_ROOT / "docs/explain.md").read_text().split())
    assert f"It needs the scope `{right.scope}`" in text


def test_every_problem_code_of_admission_is_in_the_guide() -> None:
    from app.engine.admission import Admission

    guide = (_ROOT / "docs/http.md").read_text()
    assert all(
        f"`{verdict.value}`" in guide for verdict in Admission if verdict.value != "admitted"
    )
