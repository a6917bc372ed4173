"""What the tests share: sample states, and real servers on a data folder of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.server import Server

_HERE = Path(__file__).parent
_SMALL = _HERE / "data" / "states"


@dataclass(frozen=True)
class Sample:
    """A recorded state as its files hold it. `tokens` are ids, `components` in wire order."""

    name: str
    tokens: list[int]
    kind: str
    components: dict[str, bytes]
    kv_descriptor: dict[str, Any] | None = None
    geometry: dict[str, Any] = field(default_factory=dict)

    @property
    def payload(self) -> bytes:
        """What a restore must give back."""
        return b"".join(self.components.values())


def load_sample(folder: Path, name: str) -> Sample:
    facts = json.loads((folder / f"{name}.json").read_text())
    components = {part: (folder / file).read_bytes() for part, file in facts["components"].items()}
    return Sample(
        name,
        facts["tokens"],
        facts["kind"],
        components,
        facts.get("kv_descriptor"),
        facts.get("geometry", {}),
    )


def shared_states() -> Path | None:
    """The folder of large samples: STATEHOLD_SHARED, or beside this checkout."""
    root = Path(os.environ.get("STATEHOLD_SHARED", _HERE.parent.parent / "shared"))
    folder = root / "data" / "states"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def hybrid() -> list[Sample]:
    """Three growing prefixes of one text, kv_recurrent: 128, 192 and 256 tokens. In every checkout."""
    return [load_sample(_SMALL, f"hybrid.{count}") for count in (128, 192, 256)]


@pytest.fixture(scope="session")
def smollm2() -> list[Sample]:
    """Three growing prefixes of one text, full_state; the larger two only where shared data lies."""
    folder = shared_states()
    counts = (128, 192, 256) if folder else (128,)
    return [load_sample(folder or _SMALL, f"smollm2.{count}") for count in counts]


ServerFactory = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[ServerFactory]:
    """Start servers on this test's data folder; what still runs at the end is stopped."""
    servers: list[Server] = []

    def run(**settings: Any) -> Server:
        server = Server(tmp_path / "data", **settings)
        servers.append(server)
        server.start()
        return server

    yield run
    for server in servers:
        server.stop()


@pytest.fixture
def server(start: ServerFactory) -> Server:
    """One server with default settings."""
    return start()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client of that server."""
    with Client(server.url) as found:
        yield found
