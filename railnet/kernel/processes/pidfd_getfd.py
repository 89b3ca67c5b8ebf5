"""The open descriptors of another process, duplicated into this process by pidfd_getfd(2): what a process still holds that does not run any more.

A process that is stopped, or that has a thread in uninterruptible sleep, goes on holding its connections and its locks, the latter also
after SIGKILL. A duplicate refers to the same open file, so what is done to the duplicate is done to the process's own.

Only the standard library is imported: the daemon's supervisor uses this.
"""

import ctypes
import fcntl
import os
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

_PIDFD_GETFD = 438  # include/uapi/asm-generic/unistd.h; the same number on every architecture, since kernel 5.6


class HeldDescriptors:
    """Duplicates of a process's sockets, and of its open files at some paths, until `close`."""

    def __init__(self, pid: int, paths: Collection[str] = ()) -> None:
        """Duplicate what a process of ours holds. A socket that this process has, too, such as that of a log, is left out.

        Needs CAP_SYS_PTRACE, or a process of the same user. A descriptor that cannot be duplicated is left out.

        Raises:
            OSError: there is no such process, or the kernel is older than 5.3 and has no pidfd_open.
        """
        self._sockets: list[int] = []
        self._files: list[int] = []
        ours = {target for _, target in _descriptors("self")}
        pidfd = os.pidfd_open(pid)
        try:
            for number, target in _descriptors(str(pid)):
                if target in paths:
                    self._duplicate(pidfd, number, self._files)
                elif target.startswith("socket:") and target not in ours:
                    self._duplicate(pidfd, number, self._sockets)
        finally:
            os.close(pidfd)

    def shut_down_sockets(self) -> int:
        """Shut down each socket in both directions, and return how many the kernel did shut down.

        The peer of a connection reads its end at once. A listening Unix socket refuses connections from now on.
        """
        return sum(map(_shut_down, self._sockets))

    def unlock_files(self) -> None:
        """Release the locks (flock) of the files. The process must have got SIGKILL before: it does not learn that it lost them."""
        for fd in self._files:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the duplicates."""
        while self._sockets or self._files:
            os.close((self._sockets or self._files).pop())

    def _duplicate(self, pidfd: int, number: int, into: list[int]) -> None:
        fd = _syscall(_PIDFD_GETFD, pidfd, number, 0)
        if fd >= 0:  # else it was closed meanwhile, or the kernel is older than 5.6 or refuses
            into.append(fd)


def _syscall_function() -> Callable[..., int]:
    function: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syscall
    return function


_syscall = _syscall_function()


def _descriptors(process: str) -> Iterator[tuple[int, str]]:
    """Yield number and target of each open descriptor, as proc_pid_fd(5) shows them."""
    folder = f"/proc/{process}/fd"
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):  # closed meanwhile, as that of this listing
            yield int(name), os.readlink(f"{folder}/{name}")


def _shut_down(fd: int) -> bool:
    with socket.socket(fileno=os.dup(fd)) as duplicate:
        try:
            duplicate.shutdown(socket.SHUT_RDWR)
        except OSError:  # not connected, or of a kind without connections
            return False
    return True
