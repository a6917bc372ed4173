"""How the command finds a server, and what it says when there is none, or none that lets it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.conftest import Answer, says
from tests.conftest import ServerFactory
from tests.support.client import Client
from tests.support.command import Command
from tests.support.server import Server, free_port

STATS = ("stats", "--json")


def token_of(server: Server, *scopes: str, **more: object) -> str:
    with Client(server.url) as client:
        answer = client.post("/admin/v1/tokens", json={"label": "t", "scopes": scopes, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["secret"])


# ---- where -------------------------------------------------------------------------------------


def test_the_server_is_the_one_of_the_settings(statehold: Command, shared: Server) -> None:
    done = statehold(*STATS, port=shared.port)
    assert (done.code, done.document["live"]) == (0, 0)


def test_the_environment_goes_before_the_settings_and_the_option_before_both(
    statehold: Command, shared: Server
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    assert statehold(*STATS, url=shared.url, port=free_port()).code == 0
    assert statehold(*STATS, "--url", shared.url, url=nobody).code == 0
    assert statehold(*STATS, url=nobody, port=shared.port).code == 4


@pytest.mark.parametrize(
    ("answer", "arguments", "status"),
    [
        (says(503, b'{"ready": false}'), ["--ready"], 503),
        (says(503, b'{"error": "nobody is behind me"}'), ["--ready"], 503),
        (says(503, b'{"ready": true}'), [], None),
        (says(503, b"no JSON", "text/plain"), ["--ready"], None),
        (says(404, b'{"error": "not here"}'), [], 404),
    ],
)
def test_health_is_1_whatever_is_wrong(
    statehold: Command,
    answering: Callable[[Answer], str],
    answer: Answer,
    arguments: list[str],
    status: int | None,
) -> None:
    done = statehold("health", "--json", *arguments, url=answering(answer))
    assert (done.code, done.document["status"], done.document["well"]) == (1, status, False)


def test_an_address_that_means_all_is_asked_at_loopback(statehold: Command, shared: Server) -> None:
    assert statehold(*STATS, host="0.0.0.0", port=shared.port).code == 0
    done = statehold(*STATS, host="::", port=free_port())
    assert done.code == 4
    assert "http://[::1]:" in done.sentence


def test_a_unix_socket_is_asked_by_settings_and_by_url(
    statehold: Command, start: ServerFactory, tmp_path: Path
) -> None:
    path = tmp_path / "s" / "http.sock"
    path.parent.mkdir()
    server = Server(tmp_path / "data", socket=path)
    server.launch()
    try:
        for _ in range(200):
            if (done := statehold(*STATS, socket=path)).code == 0:
                break
            threading.Event().wait(0.05)
        assert done.document["live"] == 0
        assert statehold(*STATS, "--url", f"unix:{path}").code == 0
        assert statehold(*STATS, "--url", f"unix://{path}").code == 0
        assert statehold("states", "list", "--url", f"unix:{path}").code == 0
    finally:
        server.stop()
    done = statehold(*STATS, socket=path)
    assert done.code == 4
    assert done.sentence == f"unix:{path} cannot be reached: No such file or directory"


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "ftp://localhost",
        "http://",
        "http://user:secret@localhost",
        "http://localhost/?x=secret",
        "http://localhost:port",
        "http://[::1",
        "http://local\x1bhost",
        "unix:relative",
    ],
)
def test_what_is_no_url_of_a_server_is_wrong_use_and_is_not_repeated(
    statehold: Command, url: str
) -> None:
    done = statehold(*STATS, "--url", url)
    assert done.code == 2
    assert "--url" in done.sentence
    assert "secret" not in done.err
    assert "STATEHOLD_URL" in statehold(*STATS, url=url).sentence


def test_a_free_port_cannot_be_guessed(statehold: Command) -> None:
    done = statehold(*STATS, port=0)
    assert (done.code, "--url" in done.sentence) == (2, True)


def test_a_path_in_front_of_the_service_is_kept(
    statehold: Command, answering: Callable[[Answer], str]
) -> None:
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        says(200, b'{"jobs": []}')(handler)

    url = answering(answer)
    assert statehold("jobs", "list", "--url", f"{url}/cache/").code == 0
    assert asked == ["/cache/admin/v1/jobs?limit=50"]


# ---- who ---------------------------------------------------------------------------------------


def test_a_token_comes_from_a_file_or_from_the_environment(
    statehold: Command, server: Server, token_file: Callable[[str], Path]
) -> None:
    secret = token_of(server, "admin:read", "admin:write")
    url = ("--url", server.url)
    path = token_file(secret)
    assert statehold(*STATS, *url, "--token-file", path).err == ""
    assert statehold(*STATS, *url, token=secret).code == 0
    # The file is what was asked for.
    assert statehold(*STATS, *url, "--token-file", path, token="sth_wrong").code == 0


def test_without_a_good_token_it_is_not_allowed(statehold: Command, server: Server) -> None:
    secret = token_of(server, "lookup")
    url = ("--url", server.url)
    none = statehold(*STATS, *url)
    assert none.code == 5
    assert none.sentence.endswith("(unauthorized)")
    wrong = statehold(*STATS, *url, token=secret[:-1] + ("A" if secret[-1] != "A" else "B"))
    assert (wrong.code, wrong.sentence.endswith("(unauthorized)")) == (5, True)
    poor = statehold(*STATS, *url, token=secret)
    assert poor.code == 5
    assert poor.sentence == "the token lacks the scope admin:read (forbidden)"
    assert secret not in none.err + wrong.err + poor.err


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_token_file_that_others_can_read_is_warned_of_and_used(
    statehold: Command,
    answering: Callable[[Answer], str],
    token_file: Callable[[str], Path],
    mode: int,
) -> None:
    path = token_file("sth_anything")
    path.chmod(mode)
    url = answering(says(200, b'{"jobs": []}'))
    done = statehold("jobs", "list", "--url", url, "--token-file", path, "--json")
    assert done.code == 0
    assert done.document == {"jobs": []}
    assert done.sentence == f"warning: others can read the token file {path}: chmod 600 it"


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"two words", b"a\r\nX-Header: b", b"\xff\xfe", b"x" * 5000]
)
def test_a_file_without_a_token_is_wrong_use_and_is_not_shown(
    statehold: Command, shared: Server, token_file: Callable[[str], Path], content: bytes
) -> None:
    path = token_file("")
    path.write_bytes(content)
    done = statehold(*STATS, "--url", shared.url, "--token-file", path)
    assert (done.code, done.sentence) == (2, f"--token-file {path} holds no token")


def test_a_token_file_that_is_not_there_is_wrong_use(
    statehold: Command, shared: Server, tmp_path: Path
) -> None:
    done = statehold(*STATS, "--url", shared.url, "--token-file", tmp_path / "none")
    assert (done.code, "No such file" in done.sentence) == (2, True)


def test_a_token_is_not_sent_on_after_a_redirect(
    statehold: Command, answering: Callable[[Answer], str]
) -> None:
    asked: list[str] = []
    elsewhere = answering(lambda handler: asked.append(handler.path))
    url = answering(says(302, b"", Location=f"{elsewhere}/admin/v1/stats"))
    done = statehold(*STATS, "--url", url, token="sth_secret")
    assert (done.code, done.sentence) == (1, f"{url} answers Found (http_302)")
    assert asked == []


def test_no_proxy_of_the_environment_sees_a_request(
    statehold: Command, shared: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    assert statehold(*STATS, "--url", shared.url).code == 0


# ---- what answers ------------------------------------------------------------------------------


def test_nobody_there_is_unreachable(statehold: Command) -> None:
    port = free_port()
    done = statehold(*STATS, port=port)
    assert done.code == 4
    assert done.sentence == f"http://127.0.0.1:{port} cannot be reached: Connection refused"
    assert done.out == ""


def test_a_host_without_an_address_is_unreachable(statehold: Command) -> None:
    done = statehold(*STATS, "--url", "http://no-such-host.invalid")
    assert (done.code, "no-such-host.invalid:80" in done.sentence) == (4, True)
    done = statehold(*STATS, "--url", f"http://{'a' * 300}.invalid")
    assert (done.code, "cannot be reached" in done.sentence) == (4, True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (says(200, b"<html>hello</html>", "text/html"), "is no Statehold server"),
        (says(200, b"[1]"), "is no Statehold server"),
        (says(200, b"[" * 200_000), "is no Statehold server"),
        (says(200, b'{"live"', length="5000"), "broke off"),
        (says(502, b"<html>bad gateway</html>", "text/html"), "has no server behind it (502)"),
        (says(503, b"{}"), "has no server behind it (503)"),
    ],
)
def test_what_speaks_otherwise_is_unreachable(
    statehold: Command, answering: Callable[[Answer], str], answer: Answer, said: str
) -> None:
    done = statehold(*STATS, "--url", answering(answer))
    assert done.code == 4
    assert said in done.sentence


@pytest.mark.parametrize("body", [b"", b"{}", b'{"states": 1, "next": 2}', b'{"job_id": null}'])
@pytest.mark.parametrize(
    "arguments",
    [
        ("stats",),
        ("states", "list"),
        ("states", "show", "x"),
        ("states", "pin", "x", "--reason", "r"),
        ("states", "pins"),
        ("quarantine", "list"),
        ("quarantine", "show", "x"),
        ("quarantine", "add", "x", "--reason", "r"),
        ("quarantine", "verify", "x"),
        ("quarantine", "release", "x"),
        ("quarantine", "download", "x", "--output", "/nonexistent/file"),
        ("evict", "x", "--yes"),
        ("jobs", "list"),
        ("jobs", "show", "x"),
        ("jobs", "start", "verify"),
        ("jobs", "wait", "x"),
        ("jobs", "cancel", "x"),
        ("backup", "x", "--online"),
        ("compact", "--online"),
        ("verify", "--online"),
    ],
    ids=" ".join,
)
def test_json_of_another_shape_is_no_answer(
    statehold: Command,
    answering: Callable[[Answer], str],
    arguments: tuple[str, ...],
    body: bytes,
) -> None:
    done = statehold(*arguments, "--url", answering(says(200, body)))
    assert (done.code, done.out) == (4, "")
    assert "no Statehold server" in done.sentence or "does not say what" in done.sentence


def test_what_a_newer_server_says_besides_is_no_trouble(
    statehold: Command, answering: Callable[[Answer], str]
) -> None:
    answer = says(200, json.dumps({"states": [], "next": None, "more_of_it": 1}).encode())
    done = statehold("states", "list", "--json", "--url", answering(answer))
    assert (done.code, done.document["more_of_it"]) == (0, 1)


def test_what_does_not_speak_http_is_unreachable(statehold: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        threading.Thread(target=talk, daemon=True).start()
        done = statehold(*STATS, "--url", f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert done.code == 4
    assert "does not speak HTTP" in done.sentence


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_silence_ends_after_the_timeout(statehold: Command, said: bytes) -> None:
    ends = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def be_silent() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(said)
                ends.wait(30)

        threading.Thread(target=be_silent, daemon=True).start()
        port = listener.getsockname()[1]
        done = statehold(*STATS, "--url", f"http://127.0.0.1:{port}", "--timeout", "0.3")
        ends.set()
    assert done.code == 4
    assert "did not answer within 0.3 s; what was asked for may still be done" in done.sentence


def test_an_answer_that_trickles_ends_too(
    statehold: Command, answering: Callable[[Answer], str]
) -> None:
    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with pytest.raises(OSError):
            for _ in range(600):
                handler.wfile.write(b" ")
                threading.Event().wait(0.05)

    done = statehold(*STATS, "--url", answering(trickle), "--timeout", "0.3")
    assert (done.code, "did not answer in time" in done.sentence) == (4, True)


def test_a_problem_becomes_a_sentence_that_a_terminal_can_take(
    statehold: Command, answering: Callable[[Answer], str]
) -> None:
    problem = {"code": "busy", "detail": "the store\x1b[31m is\nbusy\u202e", "status": 503}
    answer = says(503, json.dumps(problem).encode(), "application/problem+json")
    done = statehold(*STATS, "--url", answering(answer))
    assert (done.code, done.sentence) == (1, r"the store\x1b[31m is\x0abusy\u{202e} (busy)")


@pytest.mark.parametrize(("status", "code"), [(401, 5), (403, 5), (404, 1), (422, 1), (500, 1)])
def test_refusals_about_the_caller_have_a_code_of_their_own(
    statehold: Command, answering: Callable[[Answer], str], status: int, code: int
) -> None:
    problem = json.dumps({"code": "some_code", "detail": "No.", "status": status}).encode()
    done = statehold(*STATS, "--url", answering(says(status, problem)))
    assert (done.code, done.sentence) == (code, "No. (some_code)")
    bare = statehold(*STATS, "--url", answering(says(status, b"no", "text/plain")))
    assert (bare.code, f"(http_{status})" in bare.sentence) == (code, True)


# ---- TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *(
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=test",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ),
            *("-out", str(paths[0]), "-keyout", str(paths[1])),
        ],
        check=True,
        capture_output=True,
    )
    return paths


def test_https_trusts_whom_the_system_trusts_or_the_authority_that_is_named(
    statehold: Command, certificate: tuple[Path, Path]
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            says(200, b'{"jobs": []}')(self)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        try:
            port = httpd.server_address[1]
            jobs = ("jobs", "list", "--json", "--url", f"https://127.0.0.1:{port}")
            done = statehold(*jobs)
            assert done.code == 4
            assert "its certificate is not to be trusted" in done.sentence
            assert statehold(*jobs, "--ca-file", certificate[0]).document == {"jobs": []}
            # Named for another host, it is not good for this one.
            named = ("jobs", "list", "--url", f"https://localhost:{port}")
            assert statehold(*named, "--ca-file", certificate[0]).code == 4
        finally:
            httpd.shutdown()


def test_a_file_of_authorities_goes_with_https_and_must_be_one(
    statehold: Command, tmp_path: Path
) -> None:
    none = tmp_path / "none.pem"
    assert statehold(*STATS, "--ca-file", none).code == 2
    url = ("--url", "https://127.0.0.1:1")
    assert "No such file" in statehold(*STATS, *url, "--ca-file", none).sentence
    none.write_text("no certificate")
    assert statehold(*STATS, *url, "--ca-file", none).code == 2


# ---- the command itself ------------------------------------------------------------------------


def test_wrong_settings_are_wrong_use(statehold: Command) -> None:
    done = statehold(*STATS, budget="1GiB")
    assert done.code == 2
    assert "STATEHOLD_BUDGET" in done.sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ("states",),
        ("states", "list", "--limit", "0"),
        ("states", "list", "--min-age", "soon"),
        ("states", "list", "--max-size", "1 elephant"),
        ("states", "list", "--under", "1,x"),
        ("states", "list", "--under", "1,4294967296"),
        ("states", "list", "--pinned", "--not-pinned"),
        ("jobs", "start", "nothing"),
        ("stats", "--timeout", "nan"),
        ("stats", "--tok", "x"),
    ],
)
def test_what_cannot_be_meant_is_wrong_use(statehold: Command, arguments: tuple[str, ...]) -> None:
    done = statehold(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "error: " in done.err


def test_a_token_on_the_command_line_is_refused_and_not_shown(statehold: Command) -> None:
    for arguments in (("stats", "--token", "sth_secret"), ("jobs", "list", "--token=sth_secret")):
        done = statehold(*arguments)
        assert done.code == 2
        assert "others can read the command line" in done.err
        assert "secret" not in done.err


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("stats | head -c 0", 0, ""),
        ("stats >&-", 0, ""),
        ("stats <&- >&- 2>&-", 0, ""),
        ("stats > /dev/full", 1, "statehold: No space left on device\n"),
        ("stats --counters --json > /dev/full", 1, "statehold: No space left on device\n"),
        ("states show $'\\xff'", 2, "an argument is not UTF-8"),
        ("stats --url $'http://\\xff'", 2, "an argument is not UTF-8"),
    ],
)
def test_output_that_goes_nowhere_and_arguments_that_are_no_text_are_told(
    shared: Server, command: str, code: int, said: str
) -> None:
    """A reader that has had enough, and an output that is closed, are no failure."""
    environment = {**os.environ, "STATEHOLD_URL": shared.url, "STATEHOLD_LOG_LEVEL": "error"}
    environment.pop("STATEHOLD_SHARED", None)
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$0" -m app {command}', sys.executable],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in done.stderr if said else done.stderr == ""
