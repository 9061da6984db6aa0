"""The writer of files and folders: links, devices, modes, full disks, what killed processes leave, locks."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from intertwine.errors import InputError
from intertwine.files import (
    assert_can_write,
    finish_exchange,
    folder,
    locked,
    read_json,
    read_regular,
    replace,
    replacing,
    replacing_folder,
    sweep_leftovers,
    write_bytes,
    write_into,
)
from intertwine.files.leftovers import _PATTERN, is_left_behind, temporary_name


def names(place: Path) -> list[str]:
    return sorted(p.name for p in place.iterdir())


def name_of_the_dead(suffix: str = "") -> str:
    """A temporary name that belongs to a process which is no more."""
    code = "from intertwine.files.leftovers import temporary_name; print(temporary_name())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip() + suffix


@pytest.fixture(scope="module")
def dead() -> str:
    return name_of_the_dead()


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to("there/target.txt")
    write_bytes(link, b"new")
    assert link.is_symlink() and target.read_text() == "new" and names(tmp_path / "there") == ["target.txt"]
    (tmp_path / "dangling").symlink_to("there/later")
    write_bytes(tmp_path / "dangling", b"made")
    assert (tmp_path / "there" / "later").read_text() == "made" and (tmp_path / "dangling").is_symlink()
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(InputError, match="symbolic links"):
        write_bytes(tmp_path / "round", b"")


def test_devices_and_pipes_are_written_into(tmp_path: Path) -> None:
    write_bytes("/dev/null", b"gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(InputError, match="No space left"):
        write_bytes("/dev/full", b"x")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"through")
    reader.join()
    assert read == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode) and names(tmp_path) == ["pipe"]


def test_a_pipe_that_nobody_reads_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replace, "_PIPE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="nobody reads"):
        write_bytes(tmp_path / "pipe", b"x")


def test_stdout_as_a_file_is_added_to(tmp_path: Path) -> None:
    """`-o /dev/stdout > log` writes after what the command printed, and into the same file."""
    code = "import sys; from intertwine.files import write_bytes; print('first', flush=True)\n"
    code += "write_bytes('/dev/stdout', b'second\\n'); print('third')"
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True)
    assert (tmp_path / "log").read_text() == "first\nsecond\nthird\n"


def test_modes_follow_the_umask_or_the_old_file(tmp_path: Path) -> None:
    def mode(name: str) -> int:
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    old = os.umask(0o027)
    try:
        write_bytes(tmp_path / "new", b"")
        with replacing_folder(tmp_path / "folder", lambda place: "") as beside:
            write_bytes(beside / "inner", b"")
    finally:
        os.umask(old)
    assert mode("new") == 0o640 and mode("folder") == 0o750 and mode("folder/inner") == 0o640
    (tmp_path / "new").chmod(0o604)
    write_bytes(tmp_path / "new", b"again")
    assert mode("new") == 0o604


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=os.strerror(code)):
        write_bytes(tmp_path / "a", b"new")
    no_room = pytest.raises(InputError, match=os.strerror(code))
    with no_room, replacing_folder(tmp_path / "b", lambda place: "") as beside:
        (beside / "x").write_text("x")
    assert (tmp_path / "a").read_text() == "old" and names(tmp_path) == ["a"]


def test_a_really_full_disk(tmp_path: Path) -> None:
    """A file system of 64 kB, where mounting one is allowed."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], capture_output=True)
    if done.returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        write_bytes(tmp_path / "a", b"old")
        with pytest.raises(InputError, match="No space left"):
            write_bytes(tmp_path / "a", bytes(10**6))
        assert (tmp_path / "a").read_bytes() == b"old" and names(tmp_path) == ["a"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize("path", ["no/such/folder/a", "file/a", ".", "x" * 300, "nul\0byte", "\ud800"])
def test_what_cannot_be_written_is_our_error_and_foreseen(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    with pytest.raises(InputError):
        write_bytes(path, b"")
    with pytest.raises(InputError):
        assert_can_write(path, parents=False)
    assert names(tmp_path) == ["file"]


def test_what_the_dead_left_is_swept_and_what_the_living_write_is_not(tmp_path: Path, dead: str) -> None:
    mine, theirs = temporary_name(), dead
    for name in (mine, theirs, ".intertwine-tmp-else", "other"):
        (tmp_path / name).write_text("x")
    (tmp_path / (theirs[:-8] + "0" * 8)).mkdir()
    (tmp_path / (theirs[:-8] + "0" * 8) / "part").write_text("x")
    write_bytes(tmp_path / "a", b"")
    assert names(tmp_path) == sorted([mine, ".intertwine-tmp-else", "a", "other"])
    # a process with the number of a dead one is not its owner; one of a former boot has none
    found = _PATTERN.fullmatch(mine)
    assert found is not None and not is_left_behind(mine)
    assert is_left_behind(mine.replace(f"-{found['start']}-", "-1-"))
    assert is_left_behind(mine.replace(found["boot"], "00000000"))


def test_files_of_other_machines_are_judged_by_age(tmp_path: Path, dead: str) -> None:
    found = _PATTERN.fullmatch(dead)
    assert found is not None
    young, old = (tmp_path / dead.replace(found["host"], digit * 8) for digit in "01")
    young.write_text("x")
    old.write_text("x")
    os.utime(old, (1, 1))
    sweep_leftovers(tmp_path)
    assert names(tmp_path) == [young.name]


def test_a_folder_that_another_process_put_there_meanwhile_is_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, out = os.rename, tmp_path / "out"

    def rename(before: Path, after: Path) -> None:
        if not out.exists():
            out.mkdir()
            (out / "theirs").touch()
        real(before, after)

    monkeypatch.setattr(os, "rename", rename)
    with replacing_folder(out, lambda place: "") as beside:
        (beside / "ours").touch()
    assert names(out) == ["ours"] and names(tmp_path) == ["out"]
    (out / "ours").unlink()
    out.rmdir()
    kept = pytest.raises(InputError, match="is precious")
    with kept, replacing_folder(out, lambda place: "is precious") as beside:
        (beside / "ours").touch()
    assert names(out) == ["theirs"] and names(tmp_path) == ["out"]


def test_several_files_are_written_or_none_and_devices_first(tmp_path: Path) -> None:
    page = tmp_path / "page"
    with pytest.raises(InputError, match="No space"), ExitStack() as written:
        write_into(written, page, lambda path: path.write_text("x"))
        write_into(written, "/dev/full", lambda path: path.write_text("x"))
    assert names(tmp_path) == []
    with ExitStack() as written:
        write_into(written, page, lambda path: path.write_text("x"))
        write_into(written, os.devnull, lambda path: path.write_text("x"))
    assert page.read_text() == "x" and names(tmp_path) == ["page"]


def test_a_folder_is_replaced_at_once_or_kept(tmp_path: Path) -> None:
    out, link = tmp_path / "out", tmp_path / "link"
    link.symlink_to("out")
    for round in range(2):
        with replacing_folder(link, lambda place: "") as beside:
            (beside / f"round{round}").write_text("x")
    assert link.is_symlink() and names(out) == ["round1"] and names(tmp_path) == ["link", "out"]
    with pytest.raises(InputError, match="is precious"), replacing_folder(out, lambda place: "is precious"):
        raise AssertionError("not reached")
    (tmp_path / "file").write_text("x")
    no_folder = pytest.raises(InputError, match="not a folder")
    with no_folder, replacing_folder(tmp_path / "file", lambda place: ""):
        raise AssertionError("not reached")
    with pytest.raises(KeyboardInterrupt), replacing_folder(out, lambda place: "") as beside:
        (beside / "half").write_text("x")
        raise KeyboardInterrupt
    assert names(out) == ["round1"]


def test_without_an_exchange_the_steps_are_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    """The process stops before its n-th rename; the next look at the folder finds the old or the new one."""
    monkeypatch.setattr(folder, "exchange", lambda a, b: False)
    real = os.rename
    for fatal in (1, 2, 3):
        place = tmp_path / str(fatal)
        (place / "out").mkdir(parents=True)
        (place / "out" / "old").write_text("x")
        count = 0

        def rename(a: Path, b: Path, fatal: int = fatal) -> None:
            nonlocal count
            count += 1
            if count == fatal:
                raise KeyboardInterrupt
            real(a, b)

        with monkeypatch.context() as patch:
            patch.setattr(folder, "temporary_name", lambda end="": f"{dead[:-8]}{os.urandom(4).hex()}{end}")
            patch.setattr(os, "rename", rename)
            patch.setattr(folder, "remove", lambda path: None)
            try:
                with replacing_folder(place / "out", lambda place: "") as beside:
                    (beside / "new").write_text("x")
            except KeyboardInterrupt:
                pass
        assert (place / "out").exists() == (fatal != 2)
        finish_exchange(place)
        assert names(place / "out") == (["old"] if fatal == 1 else ["new"])
        sweep_leftovers(place)
        assert names(place) == ["out"]


def test_reading_never_waits_and_never_recurses(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "deep").write_text("[" * 100_000)
    for bad in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match=r".+"):
            read_regular(bad)
    with pytest.raises(ValueError, match=r"deep|nest|recursion"):
        read_json(tmp_path / "deep")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.join(tempfile.mkdtemp(), "s"))
        with pytest.raises(OSError, match=r".+"):
            read_regular(server.getsockname())


LOCKING = """
import sys, time
from pathlib import Path
from intertwine.files import locked
with locked(sys.argv[1], "counts"):
    print("held", flush=True)
    if len(sys.argv) > 2:
        time.sleep(600)
    count = Path(sys.argv[1] + ".count")
    value = int(count.read_text() or 0)
    time.sleep(0.01)
    count.write_text(str(value + 1))
"""


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    (tmp_path / ".lock.count").write_text("0")
    command = [sys.executable, "-c", LOCKING, str(lock)]
    with subprocess.Popen([*command, "forever"], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == b"held\n"
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            assert f"waiting for process {owner.pid}, which counts" in waiting.stderr.readline()
            owner.kill()
            waiting.wait()
    assert names(tmp_path) == [".lock.count"] and (tmp_path / ".lock.count").read_text() == "1"


def test_a_lock_that_cannot_be_signed_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match="No space left"), locked(tmp_path / ".lock", "works"):
        pass
    assert names(tmp_path) == []


def test_no_two_threads_hold_a_lock(tmp_path: Path) -> None:
    inside, most, turns = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, turns
        for _ in range(5):
            with locked(tmp_path / ".lock", "works"):
                inside += 1
                most = max(most, inside)
                turns += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, turns) == (1, 20) and names(tmp_path) == []


def test_a_failing_body_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "a") as beside:
        beside.write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "old"
