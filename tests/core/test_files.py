import multiprocessing
import os
import stat
import time

import pytest

from hcdc.core.files import atomic_path, locked, unwritable, write_atomic


def test_write_atomic_writes_text_and_bytes_and_makes_the_folder(tmp_path):
    write_atomic(tmp_path / "a" / "b" / "text", "größe")
    write_atomic(str(tmp_path / "bytes"), b"\x00\x01")
    assert (tmp_path / "a" / "b" / "text").read_text(encoding="utf-8") == "größe"
    assert (tmp_path / "bytes").read_bytes() == b"\x00\x01"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b", "bytes", "text"]


def test_a_failing_block_leaves_the_old_file_and_no_temporary(tmp_path):
    target = tmp_path / "file"
    target.write_text("old")

    def half() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("new, half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_new_content_appears_only_at_the_end(tmp_path):
    target = tmp_path / "file"
    target.write_text("old")
    with atomic_path(target) as temporary:
        temporary.write_text("new")
        assert temporary.parent == target.parent  # a rename stays on one file system
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_pipes_and_links_are_written_to_and_stay(tmp_path):
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert unwritable(pipe) == ""
    write_atomic(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    file.write_text("old")
    link.symlink_to(file)
    write_atomic(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_are_those_of_an_ordinary_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_atomic(tmp_path / "file", "text")
        assert os.umask(mask) == mask  # left as it was
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


def _add_one(path, count) -> None:
    """Read, wait, write: loses additions unless a lock keeps others out."""
    for _ in range(count):
        with locked(path.with_name("lock")):
            value = int(path.read_text())
            time.sleep(0.001)
            path.write_text(str(value + 1))


def test_a_lock_keeps_processes_apart(tmp_path):
    path = tmp_path / "number"
    path.write_text("0")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add_one, args=(path, 20)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert path.read_text() == "60"


def test_a_lock_is_free_again_after_an_error(tmp_path):
    def failing() -> None:
        with locked(tmp_path / "lock"):
            raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            failing()
