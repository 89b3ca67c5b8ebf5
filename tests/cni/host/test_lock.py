"""The lock of one container's attachment: exclusive, inherited, and removed by its last holder."""

import os
import posix
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cni.host import lock
from cni.host.errors import TRY_AGAIN, CniError
from railnet.kernel.waiting import block_until
from tests.cni.host.shell_plugins import descriptors, left_open

REPOSITORY = Path(__file__).resolve().parents[3]


def test_lock_is_refused_with_try_again_while_another_holds_it(tmp_path: Path) -> None:
    held = lock.acquire(f"{tmp_path}/a")

    with pytest.raises(CniError, match=rf"still holds {tmp_path}/a after 0\.05 s") as raised:
        lock.acquire(f"{tmp_path}/a", wait_seconds=0.05)

    os.close(held)
    assert raised.value.code == TRY_AGAIN


def test_lock_that_is_refused_leaves_no_descriptor(tmp_path: Path) -> None:
    held = lock.acquire(f"{tmp_path}/a")
    before = descriptors()

    with pytest.raises(CniError):
        lock.acquire(f"{tmp_path}/a", wait_seconds=0)

    assert left_open(before) == set()
    os.close(held)


def test_locks_of_two_containers_do_not_meet(tmp_path: Path) -> None:
    fds = [lock.acquire(f"{tmp_path}/{name}", wait_seconds=0) for name in "ab"]

    assert len(set(fds)) == 2
    lock.remove(f"{tmp_path}/a", fds[0])
    lock.remove(f"{tmp_path}/b", fds[1])


def test_remove_deletes_the_file_and_closes_the_descriptor(tmp_path: Path) -> None:
    held = lock.acquire(f"{tmp_path}/a")

    lock.remove(f"{tmp_path}/a", held)

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


def test_waiting_request_gets_a_lock_of_its_own_when_the_holder_removed_the_file(tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    held = lock.acquire(path)
    threading.Timer(0.1, lock.remove, (path, held)).start()

    fd = lock.acquire(path, wait_seconds=5)

    assert os.fstat(fd).st_ino == Path(path).stat().st_ino
    lock.remove(path, fd)


@pytest.mark.slow
def test_lock_is_held_until_a_child_that_inherited_it_has_ended(tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    held = lock.acquire(path)
    with subprocess.Popen(["/bin/sleep", "0.3"], close_fds=False) as child:
        os.close(held)

        fd = lock.acquire(path, wait_seconds=5)

        assert child.poll() is not None or is_ended(child.pid)
    lock.remove(path, fd)


def killed_with_a_delegate_left(path: str, script: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that takes the lock and starts a delegate. Return the process, and the delegate's id."""
    code = (
        f"import sys, posix; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        f"from cni.host import lock; held = lock.Lock({path!r}); held.take()\n"
        f"print(posix.posix_spawn('/bin/sh', ['sh', '-c', {script!r}], {{}}), flush=True); sys.stdin.read()"
    )
    executable = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return executable, int(executable.stdout.readline())


def kill(executable: subprocess.Popen[bytes]) -> None:
    executable.kill()
    executable.wait()
    executable.stdin.close()
    executable.stdout.close()


def test_orphaned_delegates_that_hang_are_ended(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(lock, "_ORPHAN_SECONDS", 0.05)
    path = f"{tmp_path}/a"
    executable, delegate = killed_with_a_delegate_left(path, "sleep 3600 & exec sleep 3600")
    kill(executable)

    fd = lock.acquire(path, wait_seconds=20)

    assert within(60, lambda: is_gone(delegate))  # it gives its lock back before it is a zombie
    lock.remove(path, fd)


def test_request_that_cannot_wait_ends_orphaned_delegates_for_the_next_one(tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    executable, delegate = killed_with_a_delegate_left(path, "exec sleep 3600")
    kill(executable)

    with pytest.raises(CniError):
        lock.acquire(path, wait_seconds=0)

    lock.remove(path, lock.acquire(path, wait_seconds=20))
    assert within(60, lambda: is_gone(delegate))  # it gives its lock back before it is a zombie


def test_delegates_whose_executable_lives_are_left_alone(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(lock, "_ORPHAN_SECONDS", 0)
    executable, delegate = killed_with_a_delegate_left(f"{tmp_path}/a", "exec sleep 3600")

    with pytest.raises(CniError, match="it is not finished yet"):
        lock.acquire(f"{tmp_path}/a", wait_seconds=0.2)

    alive = not is_gone(delegate)
    os.kill(delegate, signal.SIGKILL)
    kill(executable)
    assert alive


def test_delegates_whose_executable_closes_something_just_now_are_left_alone(tmp_path: Path, monkeypatch) -> None:
    executable, delegate = killed_with_a_delegate_left(f"{tmp_path}/a", "exec sleep 3600")
    listed = posix.listdir

    def with_one_that_is_closed_by_now(path: str) -> list[str]:
        return ["1000000", *listed(path)] if path == f"/proc/{executable.pid}/fd" else listed(path)

    monkeypatch.setattr(posix, "listdir", with_one_that_is_closed_by_now)
    with pytest.raises(CniError, match="it is not finished yet"):
        lock.acquire(f"{tmp_path}/a", wait_seconds=0)

    monkeypatch.undo()
    alive = not within(0.2, lambda: is_gone(delegate))
    if alive:
        os.kill(delegate, signal.SIGKILL)
    kill(executable)
    assert alive


@pytest.mark.slow
def test_process_that_has_closed_the_lock_meanwhile_is_left_alone(tmp_path: Path, monkeypatch) -> None:
    """It stands for a process that has the number of a delegate that has ended meanwhile."""
    path = f"{tmp_path}/a"
    lets_go = (
        "import os, signal; signal.signal(signal.SIGUSR1, lambda *_: os.close(3)); [signal.pause() for _ in range(9)]"
    )
    executable, delegate = killed_with_a_delegate_left(path, f"exec {sys.executable} -c '{lets_go}'")
    kill(executable)
    assert within(20, lambda: is_caught(delegate, signal.SIGUSR1))
    opened = posix.pidfd_open

    def after_it_has_let_go(pid: int) -> int:
        if pid == delegate:
            os.kill(pid, signal.SIGUSR1)
            assert within(20, lambda: not Path(f"/proc/{pid}/fd/3").is_symlink())
        return opened(pid)

    monkeypatch.setattr(posix, "pidfd_open", after_it_has_let_go)
    monkeypatch.setattr(lock, "_ORPHAN_SECONDS", 0.05)

    lock.remove(path, lock.acquire(path, wait_seconds=20))

    alive = not within(0.2, lambda: is_gone(delegate))
    if alive:
        os.kill(delegate, signal.SIGKILL)
    assert alive


def test_open_files_of_other_processes_are_not_read_since_their_server_may_be_gone(tmp_path: Path, monkeypatch) -> None:
    path = f"{tmp_path}/a"
    executable, _ = killed_with_a_delegate_left(path, "exec sleep 3600")
    kill(executable)
    facts = posix.stat

    def of_no_process(asked: str) -> os.stat_result:
        assert not asked.startswith("/proc/"), "of a file on a dead NFS server it never returns"
        return facts(asked)

    monkeypatch.setattr(posix, "stat", of_no_process)
    monkeypatch.setattr(lock, "_ORPHAN_SECONDS", 0.05)

    lock.remove(path, lock.acquire(path, wait_seconds=20))


def test_process_that_only_waits_for_a_lock_is_not_ended_with_the_delegates(tmp_path: Path, monkeypatch) -> None:
    path = f"{tmp_path}/a"
    executable, _ = killed_with_a_delegate_left(path, "exec sleep 3600")
    with (
        (tmp_path / "a").open("rb") as waiting,
        subprocess.Popen(["/bin/sleep", "3600"], pass_fds=[waiting.fileno()]) as waiter,
    ):
        kill(executable)
        monkeypatch.setattr(lock, "_ORPHAN_SECONDS", 0.05)

        lock.remove(path, lock.acquire(path, wait_seconds=20))

        assert waiter.poll() is None
        waiter.kill()


def test_lock_of_no_sandbox_locks_nothing() -> None:
    before = descriptors()
    none = lock.Lock("")

    none.take()

    assert left_open(before) == set()
    none.release()


def test_lock_is_taken_once_and_gone_when_released(tmp_path: Path) -> None:
    held = lock.Lock(f"{tmp_path}/a")
    held.release()
    held.take()
    held.take()

    with pytest.raises(CniError):
        lock.acquire(f"{tmp_path}/a", wait_seconds=0)

    held.release()
    assert list(tmp_path.iterdir()) == []


def is_gone(pid: int) -> bool:
    """Return whether a process that is no child of this one has ended; its reaper may take a while."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):  # the latter when it is reaped between opening and reading
        return True


def is_caught(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (proc(5), SigCgt)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) & 1 << (number - 1))


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Return whether the condition becomes true within some seconds."""
    return block_until(condition, seconds, 0.01)


def is_ended(pid: int) -> bool:
    """Return whether a child has closed its descriptors, reaped or not."""
    return not Path(f"/proc/{pid}/cmdline").read_bytes()


def test_first_lock_since_the_boot_makes_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "RUN", f"{tmp_path}/railnet")
    monkeypatch.setattr(lock, "FOLDER", f"{tmp_path}/railnet/lock")

    fd = lock.acquire(f"{tmp_path}/railnet/lock/a")

    os.close(fd)
    assert (tmp_path / "railnet").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "railnet/lock/a").stat().st_mode & 0o777 == 0o600


def test_remove_of_a_lock_whose_file_is_gone_closes_the_descriptor(tmp_path: Path) -> None:
    held = lock.acquire(f"{tmp_path}/a")
    (tmp_path / "a").unlink()

    lock.remove(f"{tmp_path}/a", held)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


def test_open_locked_opens_nothing_that_another_holds(tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    held = lock.open_locked(path, os.O_RDWR | os.O_CREAT)
    before = descriptors()

    assert lock.open_locked(path, os.O_RDWR) is None
    assert left_open(before) == set()
    os.close(held)


def test_open_locked_waits_for_a_folder_and_refuses_it_when_its_holder_removed_it(tmp_path: Path) -> None:
    folder, flags = tmp_path / "folder", os.O_RDONLY | os.O_DIRECTORY
    folder.mkdir()
    held = lock.open_locked(str(folder), flags)

    def remove() -> None:
        folder.rmdir()
        os.close(held)

    threading.Timer(0.1, remove).start()
    assert lock.open_locked(str(folder), flags, lock.wait_and_take) is None
