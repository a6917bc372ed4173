"""The worked example of docs/explain.md runs as pasted and gives the answer that is printed there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import get_args

from app.api.schemas.explain import ExplainResponse, ReasonInfo
from tests.support.server import Server

_PAGE = (Path(__file__).parents[1] / "docs/explain.md").read_text()


def test_the_example_works_as_pasted(server: Server) -> None:
    blocks = _PAGE.split("<!-- executed by tests/test_explain_docs.py -->")[1].split("```")
    script = blocks[1].removeprefix("sh\n").replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    printed = json.loads(blocks[3].removeprefix("json\n"))
    for state in (answer["usable"], printed["usable"], *answer["unused"], *printed["unused"]):
        del state["state_id"]
        for reason in state.get("reasons", []):
            reason.pop("at_ms", None)
    shown = printed.pop("usable")
    del shown["…"]
    assert shown.items() <= answer.pop("usable").items()
    assert answer == printed


def test_every_reason_and_parting_is_in_the_tables() -> None:
    for model, field in ((ReasonInfo, "reason"), (ExplainResponse, "parting")):
        for word in get_args(model.model_fields[field].annotation):
            assert f"| `{word}` |" in _PAGE
