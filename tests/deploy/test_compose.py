"""The compose file and what it mounts: the published schema, our settings, and a real Prometheus.

There is no engine here that would run it; what can be proven without one is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from app import VERSION
from app.settings import Settings
from tests.conftest import ServerFactory
from tests.support.dockerfile import stages
from tests.support.folders import statehold
from tests.support.server import free_port

_ROOT = Path(__file__).parents[2]
_DEPLOY = _ROOT / "deploy"
_COMPOSE = _DEPLOY / "compose.yaml"
_SECRETS = "/run/secrets/"


def _yaml(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = _yaml(_COMPOSE)
    return found


def _sources(service: dict[str, Any]) -> dict[str, Path]:
    """Files and folders of this repository that a service mounts, by where it finds them."""
    mounts = {}
    for volume in service["volumes"]:
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            mounts[target] = (_DEPLOY / source).resolve()
    return mounts


def test_it_is_a_compose_file_by_the_published_schema() -> None:
    checker = Path(sysconfig.get_path("scripts")) / "check-jsonschema"
    command: list[str | Path] = [checker, "--builtin-schema", "vendor.compose-spec", _COMPOSE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_setting_of_ours_exists_and_takes_its_value(
    compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_here = compose["services"]["statehold"]["environment"]
    for name, value in set_here.items():
        monkeypatch.setenv(name, re.sub(r"\$\{(\w+):-(.*)\}", r"\2", str(value)))
    settings = Settings()
    assert settings.backup_dir == Path("/backups")
    assert {
        name.removeprefix("STATEHOLD_").lower() for name in set_here
    } <= settings.model_fields_set
    # What may be said from outside has the name of the setting.
    for name, value in set_here.items():
        for inner in re.findall(r"\$\{(\w+)", str(value)):
            assert inner == name


def test_images_are_pinned_and_ours_has_the_version(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert services["statehold"]["image"] == f"statehold:{VERSION}"
    for name in ("prometheus", "grafana"):
        assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", services[name]["image"])
    build = services["statehold"]["build"]
    assert (_DEPLOY / build["context"] / build["dockerfile"]).resolve() == _ROOT / "Dockerfile"


def test_every_service_is_locked_down_and_on_loopback_only(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["init"] is True, name
        assert service["logging"]["options"]["max-size"], name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        if name != "statehold":  # its image has one
            assert service["healthcheck"]["test"][0] == "CMD", name


def test_volumes_fit_the_image_and_are_declared(compose: dict[str, Any]) -> None:
    last = stages(_ROOT / "Dockerfile")[-1]
    ours = [volume.split(":") for volume in compose["services"]["statehold"]["volumes"]]
    targets = {target for _, target in ours}
    assert last.last("VOLUME").rest in targets
    # A new volume takes the owner of the image's folder: one that the image lacks would be root's.
    made = next(step.rest for step in last.steps if "install -d" in step.rest)
    assert all(re.search(rf"install -d [^&]*{target}\b", made) for target in targets)
    named = set()
    for service in compose["services"].values():
        named |= {v.split(":")[0] for v in service["volumes"] if not v.startswith(".")}
    assert named == set(compose["volumes"])


def test_everything_mounted_is_there_and_read_only(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for source in _sources(service).values():
            assert source.exists(), source
        for volume in service["volumes"]:
            assert volume.startswith(("data:", "backups:", "prometheus:", "grafana:")) or (
                volume.endswith(":ro")
            )


def test_secrets_are_files_that_no_commit_takes(compose: dict[str, Any]) -> None:
    used = {name for s in compose["services"].values() for name in s.get("secrets", [])}
    assert used == set(compose["secrets"])
    for secret in compose["secrets"].values():
        path = Path("deploy") / secret["file"]
        done = subprocess.run(["git", "check-ignore", "-q", path], cwd=_ROOT, check=False)
        assert done.returncode in (0, 128)  # 128: an archive without git
    scrape = _yaml(_DEPLOY / "prometheus.yml")["scrape_configs"][0]
    token = scrape["authorization"]["credentials_file"]
    assert token.removeprefix(_SECRETS) in compose["services"]["prometheus"]["secrets"]
    password = compose["services"]["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    assert password.removeprefix(_SECRETS) in compose["services"]["grafana"]["secrets"]


def test_it_stops_after_the_service_s_own_time(compose: dict[str, Any]) -> None:
    grace_s = Settings.model_fields["shutdown_grace_s"].default
    stop = compose["services"]["statehold"]["stop_grace_period"]
    assert int(stop.removesuffix("s")) >= 2 * grace_s


def test_prometheus_asks_our_service_and_grafana_asks_prometheus(compose: dict[str, Any]) -> None:
    config = _yaml(_DEPLOY / "prometheus.yml")
    (scrape,) = config["scrape_configs"]
    assert scrape["job_name"] == "statehold"  # what the alerts expect
    port = Settings.model_fields["port"].default
    assert scrape["static_configs"] == [{"targets": [f"statehold:{port}"]}]
    mounted = _sources(compose["services"]["prometheus"])
    assert [mounted[path].name for path in config["rule_files"]] == ["alerts.yml"]
    provisioning = _DEPLOY / "grafana" / "provisioning"
    (source,) = _yaml(provisioning / "datasources" / "prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"] is True  # the dashboard's variable takes the default one
    (provider,) = _yaml(provisioning / "dashboards" / "statehold.yaml")["providers"]
    folder = _sources(compose["services"]["grafana"])[provider["options"]["path"]]
    boards = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert [board["uid"] for board in boards] == ["statehold"]


def test_rules_and_scrapes_are_what_prometheus_takes(tmp_path: Path) -> None:
    """With its own checker where there is one."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here")
    config = _local(tmp_path, "127.0.0.1:1", "sth_x")
    done = subprocess.run(
        [promtool, "check", "config", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rules = _yaml(_ROOT / "docs" / "prometheus" / "alerts.yml")["groups"][0]["rules"]
    assert f"{len(rules)} rules found" in done.stdout


def _local(folder: Path, target: str, secret: str) -> Path:
    """deploy/prometheus.yml with this machine's paths."""
    (folder / "token").write_text(f"{secret}\n")
    text = (_DEPLOY / "prometheus.yml").read_text()
    for old, new in {
        "/etc/prometheus/alerts.yml": str(_ROOT / "docs" / "prometheus" / "alerts.yml"),
        f"{_SECRETS}statehold_metrics_token": str(folder / "token"),
        "statehold:8080": target,
        "scrape_interval: 15s": "scrape_interval: 1s",
    }.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "prometheus.yml"
    path.write_text(text)
    return path


@pytest.fixture
def prometheus(start: ServerFactory, tmp_path: Path) -> Iterator[str]:
    """A real Prometheus that scrapes a real server with the first token that was made."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no Prometheus here")
    made = statehold(
        tmp_path / "data", "token", "create", "--label", "metrics", "--scope", "admin:read"
    )
    server = start(host="0.0.0.0")
    config = _local(tmp_path, f"127.0.0.1:{server.port}", made.stdout.strip())
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address={address}",
        ],
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )
    try:
        yield f"http://{address}/api/v1"
    finally:
        process.terminate()
        process.wait(30)


def _query(api: str, expression: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{api}/query", params={"query": expression})
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def test_prometheus_scrapes_with_the_token_and_loads_every_alert(prometheus: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(httpx.TransportError, KeyError):
            found = _query(prometheus, 'up{job="statehold"}')
            if found and found[0]["value"][1] == "1":
                break
        assert time.monotonic() < deadline, "it was never scraped"
        time.sleep(0.2)
    assert _query(prometheus, "statehold_workers")[0]["value"][1] == "1"
    groups = httpx.get(f"{prometheus}/rules").json()["data"]["groups"]
    assert {rule["health"] for rule in groups[0]["rules"]} <= {"ok", "unknown"}
    assert not [r for r in groups[0]["rules"] if r["state"] == "firing"]
    (target,) = httpx.get(f"{prometheus}/targets").json()["data"]["activeTargets"]
    assert target["lastError"] == ""


def test_the_dashboard_s_provisioned_variables_need_no_hand(compose: dict[str, Any]) -> None:
    board = json.loads((_ROOT / "docs" / "grafana" / "statehold.json").read_text())
    (source,) = (v for v in board["templating"]["list"] if v["type"] == "datasource")
    assert source["query"] == "prometheus"
    assert "__inputs" not in board  # a file with them is only good for importing by hand
