"""The Dockerfile as written: linted, complete, pinned, nobody's root. What it makes: test_image.py."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

from app.settings import Settings
from tests.support.dockerfile import context, stages

_ROOT = Path(__file__).parents[2]
_DOCKERFILE = _ROOT / "Dockerfile"


def test_the_linter_has_nothing_to_say() -> None:
    linter = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run(
        [linter, "--no-color", _DOCKERFILE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_base_images_are_pinned_to_one_python_of_one_debian() -> None:
    images = {stage.image for stage in stages(_DOCKERFILE)}
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", images.pop())


def test_all_that_is_copied_is_let_into_the_build_and_nothing_else_is() -> None:
    build = stages(_DOCKERFILE)[0]
    copied = {name for s in build.steps if s.name == "COPY" for name in s.words[:-1]}
    let_in = context(_ROOT)
    assert copied == {path.parts[0] for path in let_in}
    assert Path("app/ui/index.html") in let_in
    assert Path("migrations/versions/2026_12_01_initial.py") in let_in
    assert not [path for path in let_in if "__pycache__" in path.parts]
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=_ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    if tracked:  # not in a release's archive
        packages = {name for name in tracked if name.split("/")[0] in copied}
        missing = packages - {str(path) for path in let_in}
        assert not missing, f"{missing} would not be in the image"


def test_every_copy_is_by_name_and_from_a_stage_that_there_is() -> None:
    first, last = stages(_DOCKERFILE)
    (copy,) = [step for step in last.steps if step.name == "COPY"]
    assert copy.words[0] == f"--from={first.name}"
    assert not [step for stage in (first, last) for step in stage.steps if step.name == "ADD"]


def test_it_runs_as_a_number_that_is_not_root_s() -> None:
    last = stages(_DOCKERFILE)[-1]
    user = last.last("USER").rest
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), "Kubernetes proves a number, not a name"
    made = next(step.rest for step in last.steps if "useradd" in step.rest)
    uid, gid = user.split(":")
    assert f"--uid {uid}" in made
    assert f"--gid {gid}" in made
    names = [step.name for step in last.steps]
    assert names.index("USER") > names.index("RUN")


def test_what_it_sets_are_settings_and_one_data_volume() -> None:
    last = stages(_DOCKERFILE)[-1]
    environment = last.environment()
    named = {name for name in environment if name.startswith("STATEHOLD_")}
    assert {name.removeprefix("STATEHOLD_").lower() for name in named} <= set(Settings.model_fields)
    assert environment["STATEHOLD_DATA_DIR"] == last.last("VOLUME").rest
    assert last.last("EXPOSE").rest == str(Settings.model_fields["port"].default)


def test_commands_take_no_shell_so_that_signals_arrive() -> None:
    last = stages(_DOCKERFILE)[-1]
    assert last.last("ENTRYPOINT").rest.startswith("[")
    assert last.last("CMD").words == ["serve"]
    health = last.last("HEALTHCHECK").rest
    command = health.split("CMD ", 1)[1]
    program = last.last("ENTRYPOINT").words[0]
    assert command == f'["{program}", "health"]'  # tests/test_health_command.py runs it
