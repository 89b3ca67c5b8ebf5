"""The lock of one container's attachment: the delegates of one request at a time, also after the runtime killed an executable.

It is taken before the first delegate is started and not before: a DEL reaches the daemon, which ends an ADD, while that
ADD's delegates still hold it. The descriptor is inheritable on purpose: every delegate a request starts holds it too, so
whoever comes next waits until nothing of that request runs any more. Delegates whose executable was killed are of no use
to anybody: who waits for them ends them.
"""

import fcntl
import posix
import select
import time

from cni.host.errors import TRY_AGAIN, CniError

RUN = "/run/railnet"
FOLDER = RUN + "/lock"
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.005
# How long delegates without their executable may take to end by themselves, as nearly all do, and how often is looked.
_ORPHAN_SECONDS = 1.0
_SIGKILL = 9


class Lock:
    """One request's lock, at a path below `FOLDER`; "" for a request of no sandbox, which locks nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def take(self, interrupt_fd: int = -1) -> None:
        """Hold it from now on; every delegate that is started holds it, too. Who waits gives up when the descriptor is readable.

        Raises:
            CniError: as `acquire`.
        """
        if self._fd < 0 and self._path:
            self._fd = acquire(self._path, interrupt_fd=interrupt_fd)

    def release(self) -> None:
        """Release it, if it was taken; delegates that still run go on holding it."""
        if self._fd >= 0:
            remove(self._path, self._fd)
            self._fd = -1


def acquire(
    path: str, operation: int = fcntl.LOCK_EX, wait_seconds: float = WAIT_SECONDS, interrupt_fd: int = -1
) -> int:
    """Lock a file below `FOLDER`, made if it is absent; the caller owns the inheritable descriptor.

    Raises:
        CniError: code 11, another request still holds it after `wait_seconds`, or when `interrupt_fd` has something to read.
    """
    give_up = time.monotonic() + wait_seconds
    while True:
        fd = _open(path)
        if _locked(fd, operation, give_up, interrupt_fd) and is_at(fd, path):
            posix.set_inheritable(fd, True)
            return fd
        posix.close(fd)
        if time.monotonic() >= give_up or _is_readable(interrupt_fd, 0):
            message = (
                f"an earlier request still holds {path} after {wait_seconds:g} s: it is not finished yet, try again"
            )
            raise CniError(TRY_AGAIN, message)


def remove(path: str, fd: int) -> None:
    """Release a lock and delete its file; the descriptor is closed."""
    try:
        posix.unlink(path)  # while it is held: who waits on it finds another file, or none, at the path
    except FileNotFoundError:
        return  # somebody tidied up; it is gone, which is all that was wanted
    finally:
        posix.close(fd)


def _open(path: str) -> int:
    flags = posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC
    try:
        return posix.open(path, flags, 0o600)
    except FileNotFoundError:  # first request since the boot: /run is a tmpfs
        for folder in (RUN, FOLDER):
            try:
                posix.mkdir(folder, 0o700)
            except FileExistsError:
                continue
        return posix.open(path, flags, 0o600)


def _locked(fd: int, operation: int, give_up: float, interrupt_fd: int) -> bool:
    look_at = time.monotonic() + _ORPHAN_SECONDS
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            if now >= give_up:
                _end_orphans(fd)  # who does not wait for them finds the lock free the next time
                return False
            if now >= look_at:
                _end_orphans(fd)
                look_at = time.monotonic() + _ORPHAN_SECONDS
            if _is_readable(interrupt_fd, _POLL_SECONDS):  # flock has no timeout
                return False
        else:
            return True


def _is_readable(fd: int, seconds: float) -> bool:
    """Wait for some seconds until there is something to read; -1 is no descriptor."""
    return bool(select.select((fd,) if fd >= 0 else (), (), (), seconds)[0])


def _end_orphans(fd: int) -> None:
    """Kill who holds the lock, if the executable that took it has ended: delegates that nobody waits for."""
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
    """Kill a process that holds the lock: by a descriptor, since its number may be another's by now, which holds none."""
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
    """Give who took the lock that a process holds on a file, as a process id; None if it holds none.

    A process that only waits for it has the file open, too, but no lock on that opening of it. Files are told apart by
    what /proc says of them: to ask for the facts of a file whose server is gone (NFS) never returns.
    """
    try:
        opened = posix.listdir(f"/proc/{pid}/fd")
    except OSError:  # it has ended meanwhile, or this process may not look
        return None
    for number in opened:
        try:
            if _name(f"/proc/{pid}/fd/{number}") == name:
                taker = _lock_of(f"/proc/{pid}/fdinfo/{number}", inode)
                if taker is not None:
                    return taker
        except OSError:  # it has closed that one meanwhile
            continue
    return None


def _name(link: str) -> str:
    return posix.readlink(link).rpartition("/")[2].removesuffix(" (deleted)")


def _lock_of(path: str, inode: int) -> int | None:
    """Read who took it: `lock: 1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> …` (fs/locks.c, lock_get_status).

    0 where that has ended.
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


def is_at(fd: int, path: str) -> bool:
    """Tell whether the locked file is still the one at its path: its last holder may have deleted it."""
    try:
        return posix.fstat(fd).st_ino == posix.stat(path).st_ino
    except FileNotFoundError:
        return False
