"""What instances of a data folder tell each other: kept with the lock, gone with the process."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from storage.layout import DataFolder, Instance


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    found = DataFolder(tmp_path / "data")
    found.prepare()
    return found


def _publish_and_wait(path: Path, notice: bytes, ready: Connection) -> None:
    Instance(DataFolder(path)).publish(notice)
    ready.send(None)
    signal.pause()


class Other:
    """Another process that has published something."""

    def __init__(self, folder: DataFolder, notice: bytes) -> None:
        ready, told = multiprocessing.Pipe()
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(target=_publish_and_wait, args=(folder.path, notice, told))
        self._process.start()
        assert ready.poll(30)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@pytest.fixture
def others(folder: DataFolder) -> Iterator[list[Other]]:
    found = [Other(folder, b"first"), Other(folder, b"second")]
    yield found
    for other in found:
        other.kill()


def test_notices_of_the_other_instances_are_read_and_go_with_them(
    folder: DataFolder, others: list[Other]
) -> None:
    mine = Instance(folder)
    mine.publish(b"mine")
    assert sorted(mine.notices().values()) == [b"first", b"second"]
    others[0].kill()
    assert list(mine.notices().values()) == [b"second"]
    mine.leave()


def test_a_shorter_notice_takes_the_place_of_a_longer_one(folder: DataFolder) -> None:
    mine, other = Instance(folder), Instance(folder)
    assert mine.notices() == {}
    for notice in (b"x" * 4000, b"short", b""):
        other.publish(notice)
        assert mine.notices() == {other.name: notice}
    other.leave()
    mine.leave()


def test_a_notice_that_is_half_written_is_not_read(folder: DataFolder) -> None:
    mine, other = Instance(folder), Instance(folder)
    other.publish(b"whole")
    file = folder.instances / f"{other.name}.lock"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"?")
    assert mine.notices() == {}
    file.write_bytes(content[:5])
    assert mine.notices() == {}
    file.write_bytes(content)
    assert mine.notices() == {other.name: b"whole"}
    other.leave()
    mine.leave()


def test_a_notice_is_bounded(folder: DataFolder) -> None:
    mine = Instance(folder)
    with pytest.raises(ValueError, match="4000"):
        mine.publish(b"x" * 4001)
    mine.leave()
