"""deploy/nginx.conf in front of a real server: TLS outside, the unix socket inside, every bit the same.

Only paths, the port and the name are replaced. Skipped where there is no nginx.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.conftest import Sample, ServerFactory
from tests.support.client import Client, b64, code
from tests.support.folders import statehold
from tests.support.server import Server, free_port

_RECIPE = Path(__file__).parents[2] / "deploy" / "nginx.conf"
_NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(
    _NGINX is None or shutil.which("openssl") is None, reason="no nginx or no openssl here"
)


@dataclass(frozen=True)
class Proxy:
    """nginx as it runs, and what its clients need."""

    url: str
    certificate: Path
    folder: Path
    server: Server
    secret: str
    pid: int

    def gathered(self) -> list[str]:
        """Files in which nginx keeps bodies just now (it unlinks them as it opens them)."""
        workers = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        found = []
        for worker in workers:
            for descriptor in Path(f"/proc/{worker}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if "/temp-" in str(descriptor.readlink()):
                        found.append(str(descriptor.readlink()))
        return found

    def client(self, secret: str | None) -> Client:
        client = Client(self.url)
        client._transport = httpx.HTTPTransport(
            verify=ssl.create_default_context(cafile=str(self.certificate))
        )
        if secret is not None:
            client.headers["Authorization"] = f"Bearer {secret}"
        return client


def _replaced(text: str, old: str, new: str) -> str:
    assert old in text, f"the recipe has no {old}"
    return text.replace(old, new)


@pytest.fixture
def proxy(start: ServerFactory, tmp_path: Path) -> Iterator[Proxy]:
    folder = tmp_path / "nginx"
    folder.mkdir()
    scopes = ["--scope", "lookup", "--scope", "record", "--scope", "admin:read"]
    made = statehold(tmp_path / "data", "token", "create", "--label", "proxied", *scopes)
    assert made.returncode == 0, made.stderr
    server = start(socket=folder / "http.sock", socket_mode="0660", access="tokens")
    key, certificate = folder / "tls.key", folder / "tls.crt"
    made_by = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {key} -out {certificate}"
    )
    subprocess.run(shlex.split(made_by), check=True, capture_output=True)
    port = free_port()
    text = _RECIPE.read_text()
    text = _replaced(text, "/run/statehold/http.sock;", f"{folder}/http.sock;")
    text = _replaced(text, "/etc/ssl/statehold.crt", str(certificate))
    text = _replaced(text, "/etc/ssl/statehold.key", str(key))
    text = _replaced(text, "/var/log/nginx/", f"{folder}/")
    text = _replaced(text, "server_name statehold.example.org", "server_name localhost")
    text = _replaced(text, "listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    text = _replaced(text, "    listen [::]:443 ssl;\n", "")
    (folder / "statehold.conf").write_text(text)
    user = "user root;" if os.getuid() == 0 else ""
    places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; worker_processes 1; {user}\n"
        "events { worker_connections 64; }\n"
        "http {\n"
        + "".join(f"{place}_temp_path {folder}/temp-{place};\n" for place in places)
        + f"include {folder}/statehold.conf;\n}}\n"
    )
    command = [str(_NGINX), "-c", str(folder / "nginx.conf"), "-e", str(folder / "start.log")]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr
    assert "[warn]" not in tested.stderr
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    running = Proxy(
        f"https://localhost:{port}", certificate, folder, server, made.stdout.strip(), process.pid
    )
    try:
        with running.client(None) as client:
            deadline = time.monotonic() + 30
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/healthz").status_code == 200:
                        break
                assert time.monotonic() < deadline, (folder / "start.log").read_text()
                time.sleep(0.05)
        yield running
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def secret(proxy: Proxy) -> str:
    return proxy.secret


def test_a_round_trip_through_the_proxy_is_exact(
    proxy: Proxy, secret: str, hybrid: list[Sample]
) -> None:
    large = b"".join(hashlib.shake_128(b"%d" % n).digest(1 << 20) for n in range(24))
    with proxy.client(secret) as client:
        client.record_sample("ns", hybrid[0])
        found = client.restore("ns", [*hybrid[0].tokens, 1])
        assert found.content == hybrid[0].payload
        client.record_full("large", [1, 2], large)
        with client.stream(
            "POST",
            "/v1/restore",
            json={"candidates": [{"namespace": "large", "tokens": [1, 2, 3]}]},
        ) as answer:
            assert answer.status_code == 200
            assert answer.headers["x-request-id"]
            assert "statehold-state" in answer.headers
            assert b"".join(answer.iter_raw()) == large
        state_id = client.lookup("large", [1, 2])["state"]["state_id"]
        part = client.get(
            f"/v1/states/{state_id}/components/full", headers={"Range": "bytes=1000000-1000009"}
        )
        assert (part.status_code, part.content) == (206, large[1_000_000:1_000_010])


def test_a_body_without_a_length_goes_through_and_into_no_file(proxy: Proxy, secret: str) -> None:
    data = os.urandom(3_000_000)
    seen: list[str] = []

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(data), 70_000):
            yield data[at : at + 70_000]
            seen.extend(proxy.gathered())

    with proxy.client(secret) as client:
        admitted = client.admit("ns", [1], "full_state", {"full": len(data)})
        state_id = admitted.json()["state_id"]
        assert client.upload(state_id, "full", pieces()).status_code == 200
        assert client.commit(state_id).status_code == 200
        assert client.restore("ns", [1]).content == data
    assert seen == []


def test_what_a_slow_client_has_not_read_stays_with_the_service(proxy: Proxy, secret: str) -> None:
    data = os.urandom(48 << 20)
    with proxy.client(secret) as client:
        state_id = client.record_full("ns", [1], data)
        with client.stream("GET", f"/v1/states/{state_id}/components/full") as answer:
            pieces = answer.iter_raw(1 << 16)
            read = [next(pieces)]
            time.sleep(1)  # as long as it would take to gather the rest
            assert proxy.gathered() == []
            read += pieces
    assert b"".join(read) == data


def test_refusals_come_back_as_they_are(proxy: Proxy, secret: str) -> None:
    with proxy.client(None) as stranger:
        assert code(stranger.get("/admin/v1/stats")) == (401, "unauthorized")
        assert code(stranger.post("/v1/lookup", json={})) == (401, "unauthorized")
    with proxy.client(secret) as client:
        admitted = client.admit("ns", [1], "full_state", {"full": 10})
        refused = client.upload(admitted.json()["state_id"], "full", b"x" * 2_000_000)
        assert code(refused) == (400, "length_mismatch")
    # nginx says "keep-alive" with an early answer and may close all the same: a new connection.
    with proxy.client(secret) as client:
        missed = client.restore("ns", [9])
        assert (missed.status_code, missed.content) == (204, b"")
        assert "never_seen" in missed.headers["statehold-miss"]


def test_the_logs_hold_no_tokens(proxy: Proxy, secret: str) -> None:
    canary = b64([811_273, 44_907, 902_113])
    with proxy.client(secret) as client:
        client.post("/v1/lookup", json={"candidates": [{"namespace": "n", "tokens_b64": canary}]})
        client.get(f"/admin/v1/states?under_b64={canary}")
        listed = client.get(f"/admin/v1/states?limit=0&under_b64={canary}")
        assert listed.status_code == 422
    proxy.server.stop()
    path = f"{proxy.url}/admin/v1/states?under_b64={canary}"
    trusted = ssl.create_default_context(cafile=str(proxy.certificate))
    assert httpx.get(path, verify=trusted).status_code == 502
    deadline = time.monotonic() + 10
    log = proxy.folder / "statehold.log"
    while " 502 " not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    written = log.read_text() + (proxy.folder / "statehold-error.log").read_text()
    assert '"GET /admin/v1/states" 502' in written
    assert canary not in written
    assert secret not in written


def test_the_recipe_s_times_fit_the_service_s() -> None:
    """nginx must let go of an idle connection before the service does, or a POST meets its end."""
    source = (_RECIPE.parents[1] / "app" / "server.py").read_text()
    kept_s = re.search(r'"timeout_keep_alive": (\d+)', source)
    proxied_s = re.search(r"keepalive_timeout (\d+)s;", _RECIPE.read_text())
    assert kept_s is not None
    assert proxied_s is not None
    assert int(proxied_s[1]) < int(kept_s[1])
