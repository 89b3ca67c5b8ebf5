"""Locks on files that another process may remove or replace; and the lock of one sandbox's attachment, made of them.

A request takes its attachment's lock before it starts the first delegate and not earlier: so a DEL reaches the daemon, which
ends an ADD, while that ADD's delegates still hold the lock. The descriptor is inheritable on purpose: every delegate that a
request starts holds the lock too, also after the runtime has killed the executable. So the next request waits until nothing
of the earlier one runs any more. Delegates whose executable was killed serve no request: a request that waits for them ends
them.

A lock whose file cannot be made (a full `/run`) is left out: the primary network alone has no such lock, and a pod's network is
worth more than the order of requests that runtimes keep anyhow.
"""

import fcntl
import posix
import select
import time

from cni.host.errors import TRY_AGAIN, CniError

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Callable

RUN = "/run/railnet"
FOLDER = RUN + "/lock"
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.005
# How long delegates without their executable may take to end by themselves, as nearly all do, and how often that is checked.
_ORPHAN_SECONDS = 1.0
_SIGKILL = 9


class Lock:
    """One request's lock, at a path below `FOLDER`; "" for a request of no sandbox, which locks nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def take(self, interrupt_fd: int = -1) -> None:
        """Hold the lock from now on; a second call does nothing. Every delegate that is started later holds it, too.

        Nothing happens if the lock's file cannot be made.

        Raises:
            CniError: as `acquire`.
        """
        if self._fd < 0 and self._path:
            try:
                self._fd = acquire(self._path, interrupt_fd=interrupt_fd)
            except OSError:
                self._path = ""

    def release(self) -> None:
        """Release the lock if it was taken; delegates that still run go on holding it."""
        if self._fd >= 0:
            remove(self._path, self._fd)
            self._fd = -1


def take_now(fd: int) -> bool:
    """Lock an open file or folder; False if another process holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_and_take(fd: int) -> bool:
    """Lock an open file or folder as soon as no other process holds it. Return True."""
    fcntl.flock(fd, fcntl.LOCK_EX)
    return True


def open_locked(path: str, flags: int, take: "Callable[[int], bool]" = take_now) -> int | None:
    """Open and lock a file or folder that its holder may remove; the caller owns the descriptor.

    None: `take` did not get the lock, or what it locked is not at the path any more. Then the caller may try again.

    Raises:
        OSError: it cannot be opened.
    """
    fd = posix.open(path, flags | posix.O_CLOEXEC, 0o600)
    try:
        if take(fd) and _is_at(fd, path):
            return fd
    except BaseException:
        posix.close(fd)
        raise
    posix.close(fd)
    return None


def acquire(path: str, wait_seconds: float = WAIT_SECONDS, interrupt_fd: int = -1) -> int:
    """Lock a file below `FOLDER`, made if it is absent; the caller owns the inheritable descriptor.

    Raises:
        CniError: code 11, another request still holds it after `wait_seconds`, or when `interrupt_fd` has something to read.
        OSError: its file cannot be made or opened.
    """
    give_up = time.monotonic() + wait_seconds

    def take(fd: int) -> bool:
        return _take_in_time(fd, give_up, interrupt_fd)

    while True:
        fd = _open_or_make(path, take)
        if fd is not None:
            posix.set_inheritable(fd, True)
            return fd
        if time.monotonic() >= give_up or _is_readable(interrupt_fd, 0):
            message = (
                f"an earlier request still holds {path} after {wait_seconds:g} s: it is not finished yet, try again"
            )
            raise CniError(TRY_AGAIN, message)


def acquire_if_possible(path: str) -> "tuple[int, ...]":
    """Lock a file as `acquire` without a wait; the caller owns the descriptor. Return () if the file cannot be made.

    Raises:
        CniError: code 11, another request holds it.
    """
    try:
        return (acquire(path, wait_seconds=0),)
    except OSError:
        return ()


def remove(path: str, fd: int) -> None:
    """Release a lock and delete its file; the descriptor is closed."""
    try:
        posix.unlink(
            path
        )  # while the lock is held: a process that waits for it then finds another file, or none, at the path
    except FileNotFoundError:
        return  # another process has deleted it
    finally:
        posix.close(fd)


def _open_or_make(path: str, take: "Callable[[int], bool]") -> int | None:
    flags = posix.O_RDWR | posix.O_CREAT
    try:
        return open_locked(path, flags, take)
    except FileNotFoundError:  # first request since the boot: /run is a tmpfs
        for folder in (RUN, FOLDER):
            try:
                posix.mkdir(folder, 0o700)
            except FileExistsError:
                continue
        return open_locked(path, flags, take)


def _take_in_time(fd: int, give_up: float, interrupt_fd: int) -> bool:
    check_at = time.monotonic() + _ORPHAN_SECONDS
    while not take_now(fd):
        now = time.monotonic()
        if now >= give_up:
            _end_orphans(fd)  # the runtime's next request then finds the lock free
            return False
        if now >= check_at:
            _end_orphans(fd)
            check_at = time.monotonic() + _ORPHAN_SECONDS
        if _is_readable(interrupt_fd, _POLL_SECONDS):  # flock has no timeout
            return False
    return True


def _is_readable(fd: int, seconds: float) -> bool:
    """Wait until there is something to read, `seconds` at most; -1 is no descriptor."""
    return bool(select.select((fd,) if fd >= 0 else (), (), (), seconds)[0])


def _end_orphans(fd: int) -> None:
    """Kill the holders of the lock if the executable that took it has ended: they are delegates of no request."""
    name, inode = _name(f"/proc/self/fd/{fd}"), posix.fstat(fd).st_ino
    held = [(pid, taker) for pid in _processes() if (taker := _taker(pid, name, inode)) is not None]
    alive = {pid for pid, _ in held}
    for pid, taker in held:
        if taker not in alive:
            try:
                _end(pid, name, inode)
            except OSError:
                continue  # it has ended, or is not ours to end


def _end(pid: int, name: str, inode: int) -> None:
    """Kill a process that holds the lock: by a descriptor, since its number may be another process's by now."""
    from _signal import pidfd_send_signal  # type: ignore[import-not-found]  # built in; `signal` is not

    pidfd = posix.pidfd_open(pid)
    try:
        if _taker(pid, name, inode) is not None:
            pidfd_send_signal(pidfd, _SIGKILL)
    finally:
        posix.close(pidfd)


def _processes() -> list[int]:
    return [int(name) for name in posix.listdir("/proc") if name.isdigit()]


def _taker(pid: int, name: str, inode: int) -> int | None:
    """Return the id of the process that took the lock which process `pid` holds on a file; None if `pid` holds none.

    A process that only waits for the lock has the file open, too, but no lock on that opening of it. The file is found by
    its name in /proc: `stat` on a file whose NFS server is gone never returns.
    """
    try:
        opened = posix.listdir(f"/proc/{pid}/fd")
    except OSError:  # it has ended meanwhile, or this process may not read it
        return None
    for number in opened:
        try:
            if _name(f"/proc/{pid}/fd/{number}") == name:
                taker = _lock_of(f"/proc/{pid}/fdinfo/{number}", inode)
                if taker is not None:
                    return taker
        except OSError:  # it has closed that file meanwhile
            continue
    return None


def _name(link: str) -> str:
    return posix.readlink(link).rpartition("/")[2].removesuffix(" (deleted)")


def _lock_of(path: str, inode: int) -> int | None:
    """Read which process took it: `lock: 1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> …` (fs/locks.c, lock_get_status).

    0 if that process has ended.
    """
    fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    try:
        lines = posix.read(fd, 4096).splitlines()
    finally:
        posix.close(fd)
    for line in lines:
        words = line.split()
        if words[:1] == [b"lock:"] and words[2:3] == [b"FLOCK"] and words[6].endswith(b":%d" % inode):
            return int(words[5])
    return None


def _is_at(fd: int, path: str) -> bool:
    """Return whether an open file is still the one at its path: its last holder may have removed it."""
    try:
        opened, at_path = posix.fstat(fd), posix.stat(path)
    except FileNotFoundError:
        return False
    return (opened.st_dev, opened.st_ino) == (at_path.st_dev, at_path.st_ino)
