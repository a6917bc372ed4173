"""The commands of docs/admin.md run as pasted; its tables name what there is."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from app.api.schemas.admin import EvidenceInfo
from app.api.schemas.evictions import EvictionRequest
from app.engine.limits import CHANGEABLE
from tests.support.client import Client
from tests.support.damage import blocks_of, flip_value
from tests.support.server import Server

_PAGE = (Path(__file__).parents[1] / "docs/admin.md").read_text()


_TOP = _PAGE.split("\n## ")[0]


def section(title: str) -> str:
    return _PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def pasted(server: Server, title: str, folder: Path, **variables: str) -> str:
    """What all commands of a section print."""
    return _run(server, section(title), folder, STATEHOLD=server.url, AUTH="", **variables)


def _run(server: Server, text: str, folder: Path, after: str = "", **variables: str) -> str:
    script = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    assert script
    done = subprocess.run(
        [
            *("bash", "-euo", "pipefail", "-c"),
            script.replace("http://127.0.0.1:8080", server.url) + after,
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_column(title: str) -> set[str]:
    rows = re.findall(r"^\| (`.*?) \|", section(title), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_variables_of_the_page_are_set_as_it_says(
    server: Server, client: Client, tmp_path: Path
) -> None:
    state_id = client.record_full("demo", [1, 2], b"x")
    shown = '\necho "$STATEHOLD $AUTH $ID"'
    assert _run(server, _TOP, tmp_path, shown) == f"{server.url}  {state_id}\n"
    made = {"label": "t", "scopes": ["admin:read", "admin:write"]}
    secret = client.post("/admin/v1/tokens", json=made).json()["secret"]
    said = _run(server, _TOP, tmp_path, shown, STATEHOLD_TOKEN=secret)
    assert said == f"{server.url} Authorization: Bearer {secret} {state_id}\n"
    used = set(re.findall(r"\$([A-Z]+)\b", _PAGE))
    assert used == {"STATEHOLD", "AUTH", "ID"}


def test_the_commands_about_what_is_held_work(
    server: Server, client: Client, tmp_path: Path
) -> None:
    state_id = client.record_full("demo", [1, 2], b"x")
    assert (
        pasted(server, "Listing states", tmp_path).count(state_id) == 1
    )  # of today, under token 1
    assert '"max_stored_bytes":10737418240' in pasted(server, "Namespaces", tmp_path)
    assert pasted(server, "Evicting", tmp_path).count('"evicted_count":0') == 2
    assert pasted(server, "Pins", tmp_path, ID=state_id).count(state_id) == 2
    assert client.get("/admin/v1/pins").json()["pins"] == []


def test_the_commands_at_the_quarantine_desk_work(
    server: Server, client: Client, tmp_path: Path
) -> None:
    descriptor = {"version": 1, "layer_start": 0, "layer_end": 1, "token_start": 0}
    descriptor |= {"token_count": 2, "layer_count": 1, "k_type": 1, "v_type": 1}
    descriptor |= {"k_row_bytes": 2048, "v_row_bytes": 2048, "v_element_bytes": 2}
    descriptor |= {"k_idx_row_bytes": 0, "payload_bytes": 8192, "flags": 0, "codec": 0}
    descriptor |= {"component_count": 0}
    data = os.urandom(8192)
    state_id = client.record("ns", [1, 2], "kv", {"kv": data}, kv_descriptor=descriptor)
    flip_value(server.data, blocks_of(server.data, state_id, "kv")[0])
    assert client.restore("ns", [1, 2], accept_kinds=["kv"]).status_code == 204
    said = pasted(server, "Quarantine desk", tmp_path, ID=state_id)
    assert state_id in said
    assert '"intact":false' in said
    assert "statehold-damaged-blocks: 0" in (tmp_path / "headers.txt").read_text().lower()
    assert (tmp_path / "kv.bin").read_bytes() == bytes(8192)


def test_the_commands_that_change_limits_work(
    server: Server, client: Client, tmp_path: Path
) -> None:
    before = client.get("/admin/v1/limits").json()
    said = pasted(server, "Changing limits", tmp_path)
    assert said.count('"value":107374182400') == 1
    assert client.get("/admin/v1/limits").json() == before


def test_every_limit_and_every_field_of_the_evidence_is_in_the_tables() -> None:
    assert first_column("Changing limits") == set(CHANGEABLE)
    assert first_column("Quarantine desk") == set(EvidenceInfo.model_fields)


def test_the_commands_that_evict_work(server: Server, client: Client, tmp_path: Path) -> None:
    for n in range(3):
        client.record_full("demo", [n], os.urandom(500_000))
    said = pasted(server, "Evicting", tmp_path)
    assert said.count('"evicted_count":0') == 1
    assert said.count('"evicted_count":1') == 1
    choice = set(EvictionRequest.model_fields) - {"state_ids", "dry_run"}
    assert first_column("Evicting") == choice


def test_the_commands_that_pin_work(server: Server, client: Client, tmp_path: Path) -> None:
    state_id = client.record_full("demo", [1], b"x")
    said = pasted(server, "Pins", tmp_path, ID=state_id)
    assert said.count(f'"state_id":"{state_id}"') == 2
    assert client.get("/admin/v1/pins").json()["pins"] == []
