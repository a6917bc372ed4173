"""Builds the image without an engine: the Dockerfile's own steps in overlays of this machine's root.

What differs from a real build: the system is this machine's and not the base image's, and the Python in
/usr/local is the one that runs the tests. Each command runs in mount and process namespaces of its own, so
that nothing is left mounted; a container runs on a root that is read-only, as the image's user, with no
capability. Needs root, overlayfs and the package registry.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.dockerfile import Stage, Step, context, stages

_ROOT = Path(__file__).parents[2]
# Folders of this machine of which a container sees nothing.
_HIDDEN = ("/home", "/mnt", "/opt", "/root", "/tmp", "/var/tmp", "/work")
# The Python's own library, wherever that Python was built for.
_PYTHON = {"LD_LIBRARY_PATH": "/usr/local/lib"}
_PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"


class Image:
    """What the last stage makes. `folder` holds it, on a file system that overlays can lie on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stages = stages(_ROOT / "Dockerfile")
        self.last = self._stages[-1]

    def build(self) -> None:
        """Run every step of every stage."""
        for number, stage in enumerate(self._stages):
            for part in ("upper", "work", "root", "python-upper", "python-work"):
                (self._folder / str(number) / part).mkdir(parents=True)
            for step in stage.steps:
                self._take(number, stage, step)

    def command(self, arguments: list[str], mounts: dict[Path, str], **more: str) -> list[str]:
        """A command line that runs these arguments in a container, process 1 of it."""
        script = self._entered(len(self._stages) - 1)
        script += [f"[ ! -d {path} ] || mount -t tmpfs none $root{path}" for path in _HIDDEN]
        script += [f"mount --bind {shlex.quote(str(a))} $root{b}" for a, b in mounts.items()]
        script += ["mount -o remount,ro,bind $root", "mount -o remount,ro,bind $root/usr/local"]
        script += [f"[ ! -d {path} ] || mount -o remount,ro $root{path}" for path in _HIDDEN]
        run = self._as_its_user(arguments, more)
        script.append(f"exec chroot $root {shlex.join(run)}")
        return _unshared(script)

    def command_inside(self, first: int, arguments: list[str], **more: str) -> list[str]:
        """The same in a container that runs, given its process 1: what `docker exec` does."""
        run = self._as_its_user(arguments, more)
        return ["nsenter", f"--target={first}", "--mount", "--pid", "--root", "--wd", *run]

    def path(self, inside: str) -> Path:
        """Where a path that the last stage made lies on this machine."""
        return self._folder / str(len(self._stages) - 1) / "upper" / inside.lstrip("/")

    def _as_its_user(self, arguments: list[str], more: dict[str, str]) -> list[str]:
        environment = {**_PYTHON, **self._environment(), **more}
        uid, gid = self.last.last("USER").rest.split(":")
        return [
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items())),
            *("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"),
            *("--bounding-set=-all", "--inh-caps=-all", *arguments),
        ]

    def _environment(self) -> dict[str, str]:
        found = self.last.environment()
        found["PATH"] = found.get("PATH", _PATH).replace("$PATH", _PATH)
        return found

    def _take(self, number: int, stage: Stage, step: Step) -> None:
        if step.name == "RUN":
            run = ["/bin/sh", "-c", f"cd {self._workdir(stage)} && {step.rest}"]
            library = f"LD_LIBRARY_PATH={_PYTHON['LD_LIBRARY_PATH']}"
            script = [f"export PATH={_PATH} {library}; exec chroot $root {shlex.join(run)}"]
        elif step.name == "COPY":
            script = self._copied(stage, step)
        elif step.name == "WORKDIR":
            script = [f"mkdir -p $root{step.rest}"]
        else:
            return
        done = subprocess.run(
            _unshared([*self._entered(number), *script]),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{step.name} {step.rest}\n{done.stdout}\n{done.stderr}")

    def _copied(self, stage: Stage, step: Step) -> list[str]:
        *sources, target = step.words
        if sources[0].startswith("--from="):
            number = next(
                n
                for n, s in enumerate(self._stages)
                if s.name == sources[0].removeprefix("--from=")
            )
            (made,) = sources[1:]
            return [f"cp -a {self._folder}/{number}/upper{made} $root{target}"]
        place = Path(self._workdir(stage), target)
        script = []
        for source in sources:
            for path in context(_ROOT):
                if path.parts[0] != source:
                    continue
                # A file goes into the folder, and so does what a folder holds.
                to = place / path.name if str(path) == source else place / path.relative_to(source)
                script.append(f"mkdir -p $root{to.parent} && cp {_ROOT / path} $root{to}")
        return script

    def _workdir(self, stage: Stage) -> str:
        named = [step.rest for step in stage.steps if step.name == "WORKDIR"]
        return named[-1] if named else "/"

    def _entered(self, number: int) -> list[str]:
        place = shlex.quote(str(self._folder / str(number)))
        return [
            f"root={place}/root",
            f"mount -t overlay image -o lowerdir=/,upperdir={place}/upper,workdir={place}/work $root",
            "mkdir -p $root/usr/local",
            f"mount -t overlay python -o lowerdir={sys.base_prefix},"
            f"upperdir={place}/python-upper,workdir={place}/python-work $root/usr/local",
            "mount -t proc proc $root/proc",
            "mount --rbind /dev $root/dev",
        ]


def _unshared(script: list[str]) -> list[str]:
    return [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-ec",
        "\n".join(script),
    ]


def possible(folder: Path) -> bool:
    """Whether this machine lets us mount an overlay of its root."""
    if os.getuid() != 0:
        return False
    for part in ("u", "w", "r"):
        (folder / part).mkdir()
    mount = f"mount -t overlay x -o lowerdir=/,upperdir={folder}/u,workdir={folder}/w {folder}/r"
    return subprocess.run(_unshared([mount]), capture_output=True, check=False).returncode == 0
