"""The documentation says what the code does: the README's commands run, the tables are in step."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from app.settings import Settings
from tests.support.server import Server

_ROOT = Path(__file__).parents[1]
_BEGIN = "<!-- settings: kept in step by tests/test_docs.py -->\n"
_END = "<!-- end of settings -->"


def settings_table() -> str:
    """The table of settings as it must stand in docs/operations.md."""
    lines = ["| name | default | what it sets |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = field.default
        text = default.human_readable() if hasattr(default, "human_readable") else str(default)
        lines.append(f"| `{name}` | `{text}` | {field.description} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_settings_is_the_code_s() -> None:
    page = (_ROOT / "docs/operations.md").read_text()
    table = page.split(_BEGIN)[1].split(_END)[0]
    assert table == settings_table()


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
    assert '"admission":"admitted"' in done.stdout
    assert '"token_count":128' in done.stdout
    assert done.stdout.rstrip().endswith("exact")


@pytest.mark.parametrize("page", sorted([_ROOT / "README.md", *(_ROOT / "docs").glob("*.md")]))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_problem_code_of_admission_is_in_the_guide() -> None:
    from app.engine.admission import Admission

    guide = (_ROOT / "docs/http.md").read_text()
    assert all(
        f"`{verdict.value}`" in guide for verdict in Admission if verdict.value != "admitted"
    )
