"""Network namespaces: open one, identify it for a record, run a function inside it."""

import _thread
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EAGAIN
from pathlib import Path
from typing import NamedTuple, TypeVar

from railnet.kernel.files import open_below
from railnet.kernel.libc import LIBC

_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h

_Result = TypeVar("_Result")


class NetnsIdentity(NamedTuple):
    """Device and inode of an nsfs file. No two live namespaces share them, but a later namespace may get them again."""

    dev: int
    inode: int


def identity(netns_fd: int) -> NetnsIdentity:
    """Return the identity of an open namespace."""
    facts = os.fstat(netns_fd)
    return NetnsIdentity(facts.st_dev, facts.st_ino)


def is_nodes_own(netns: NetnsIdentity) -> bool:
    """Return whether a namespace is this process's own, or that of process 1, which is the host's in a container with `hostPID`."""
    return netns in tuple(_identities(("/proc/self/ns/net", "/proc/1/ns/net")))


def _identities(paths: Iterable[str]) -> Iterator[NetnsIdentity]:
    for path in paths:
        with suppress(OSError):  # the kernel shows another process's namespaces to a tracer only
            facts = os.stat(path)
            yield NetnsIdentity(facts.st_dev, facts.st_ino)


@contextmanager
def opened(root: Path, path: str, expected: NetnsIdentity) -> Iterator[int | None]:
    """Open the namespace bound at `path` on the host. Yield None if it is gone, or if another namespace is bound there.

    The descriptor is closed at the end.
    """
    try:
        fd = open_below(root, path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield fd if identity(fd) == expected else None
    finally:
        os.close(fd)


def inside(netns_fd: int, function: Callable[[], _Result]) -> _Result:
    """Run a function in a network namespace and return its result.

    It runs on a new thread, which enters the namespace and ends with the function. The thread never returns to its old
    namespace, a step that could fail, so no other work runs in the wrong namespace.

    Raises:
        OSError: EINVAL, the descriptor is not a network namespace; EPERM, the process lacks CAP_SYS_ADMIN; EAGAIN, no
            thread can be started. And what the function raises.
    """
    result: list[_Result] = []
    failure: list[BaseException] = []
    ended = _thread.allocate_lock()

    def enter_and_run() -> None:
        try:
            _setns(netns_fd)
            result.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again, on the caller's thread
            failure.append(error)
        finally:
            ended.release()

    ended.acquire()
    try:
        # Not `threading.Thread`: its `start` waits until the thread runs, and an attach and a detach come here three times.
        _thread.start_new_thread(enter_and_run, ())
    except RuntimeError as error:  # pthread_create's EAGAIN, without its number
        raise BlockingIOError(EAGAIN, f"{error}: a limit of processes is reached (`pids.max`, `ulimit -u`)") from None
    ended.acquire()
    if failure:
        raise failure[0]
    return result[0]


def _setns(netns_fd: int) -> None:
    # os.setns came with Python 3.12; Debian 12 has 3.11.
    if LIBC.setns(netns_fd, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns of descriptor {netns_fd}: {os.strerror(number)}")
