"""The supervisor of processes under a seccomp filter: decides on each state-changing system call, counts them, injects a fault in one.

A point is one such call. A process has one count for all its threads (docs/testing.md says why strace does not do). The
caller prepares the node and judges it.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from simnode.chaos.fault_points import CALLS, DESCRIPTORS, PATHS

# include/uapi/linux/seccomp.h: struct seccomp_notif (id, pid, flags, then struct seccomp_data), seccomp_notif_resp
_NOTIFICATION, _RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECV, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_CLONE_THREAD = 0x10000  # include/uapi/linux/sched.h
THREAD = "a thread"
_SYS_PIDFD_GETFD = 438
_PATH_BYTES = 4096
_OWN_SOCKET = "/run/railnet/"
_NOT_STATE = ("anon_inode:", "/dev/null", "/run/simnode/")
_NAMES = (  # parts of operands that differ from run to run, and their replacements
    (r"\.\w{8}$", ".TEMPORARY"),
    (r"[0-9a-f]{64}", "CONTAINER"),
    (r"cni-[-0-9a-f]{36}", "NETNS"),
    (r"veth[0-9a-f]{8}", "VETH"),
    (r"\[\d+\]", ""),
    (r"/\d+(?=/|$)", "/N"),
    (r"\.\d+$", ".N"),
)


class Point(NamedTuple):
    """One call: its process (`daemon`, `executable`, or `delegate NAME`), its name, and its operand."""

    process: str
    call: str
    operand: str

    def __str__(self) -> str:
        return f"{self.process}'s {self.call} {self.operand}".rstrip()


class Moment(NamedTuple):
    """A call that waits for the supervisor's decision: the point, the process id, and the ids of all introduced processes by name."""

    point: Point
    pid: int
    introduced: dict[str, int]


# A fault at a moment. It returns 0 if the kernel is to make the call, or the errno with which the call fails. None leaves
# the call without an answer, because its process is dead or dies.
Interference = Callable[[Moment], int | None]


class CallWatch:
    """The points seen since the watch began, and the fault that is injected at one of them.

    Args:
        process: the process of the fault; `delegate` means all delegates.
        number: the number of the point among those of the process, from 1.
        interfere: the fault.
        counts: returns whether a call is a point; other calls are made without a count. By default, the start of a
            thread is no point.
    """

    def __init__(
        self,
        process: str = "",
        number: int = 0,
        interfere: Interference | None = None,
        counts: Callable[[Point], bool] = lambda point: point.operand != THREAD,
    ) -> None:
        self._process, self._number, self._interfere, self._counts = process, number, interfere, counts
        self.points: list[Point] = []
        self.hit: Point | None = None

    def numbered(self, process: str) -> list[Point]:
        """Return the points of a process."""
        return [point for point in self.points if point.process.split()[0] == process]

    def see(self, moment: Moment) -> int | None:
        """Count a call and return the decision about it; inject the fault if the call is the chosen point."""
        if not self._counts(moment.point):
            return 0
        self.points.append(moment.point)
        if self._interfere is None or self.hit is not None or moment.point.process.split()[0] != self._process:
            return 0
        if len(self.numbered(self._process)) != self._number:
            return 0
        self.hit = moment.point
        return self._interfere(moment)


class Supervisor:
    """A thread that serves the socket `path`, where processes introduce themselves (`under_seccomp`); a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watch: CallWatch | None = None
        self._introduced: dict[str, int] = {}
        self._names: dict[int, tuple[str, int]] = {}  # seccomp listener → name and id of the process
        self._lock = threading.Lock()
        self._made = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._socket = self._made.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self._socket.bind(str(self.path))
        self._made.callback(self.path.unlink)
        self._socket.listen()
        self._wake, wake = os.pipe()
        self._made.callback(os.close, self._wake)
        self._made.callback(self._close_listeners)
        thread = threading.Thread(target=self._serve, name="supervisor", daemon=True)
        thread.start()
        self._made.callback(thread.join)
        self._made.callback(os.close, wake)
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()

    def command(self, name: str, python: str) -> tuple[str, ...]:
        """Return the words to put before a command, so that it is supervised under this name."""
        return (python, "-ISE", str(Path(__file__).with_name("under_seccomp.py")), str(self.path), name)

    @contextlib.contextmanager
    def watching(self, watch: CallWatch) -> Iterator[CallWatch]:
        """Give all calls to a watch inside this block; only one watch at a time."""
        with self._lock:
            self._watch = watch
        try:
            yield watch
        finally:
            with self._lock:
                self._watch = None

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._socket, select.POLLIN)
        while True:
            for fd, event in poll.poll():
                if fd == self._wake:
                    return
                if fd == self._socket.fileno():
                    poll.register(self._introduce(), select.POLLIN)
                elif event & select.POLLIN:
                    self._answer(fd)
                else:  # POLLHUP: the last process under this filter has ended
                    poll.unregister(fd)
                    del self._names[fd]
                    os.close(fd)

    def _introduce(self) -> int:
        connection, _ = self._socket.accept()
        with connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            name, (listener, *_), _, _ = socket.recv_fds(connection, 64, 1)
        pid = int.from_bytes(credentials[:4], "little")
        self._names[listener] = (name.decode(), pid)
        self._introduced[name.decode()] = pid
        return listener

    def _close_listeners(self) -> None:
        for listener in self._names:
            os.close(listener)

    def _answer(self, listener: int) -> None:
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECV, buffer)
        except OSError:  # ENOENT: the calling process was killed meanwhile
            return
        id_, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        error: int | None = 0
        with self._lock:
            if self._watch is not None:
                error = self._judge(self._watch, listener, thread, CALLS[number][0], arguments)
        if error is None:
            return
        response = _RESPONSE.pack(id_, 0, -error, 0 if error else _CONTINUE)
        with contextlib.suppress(OSError):  # ENOENT: the calling process was killed meanwhile
            fcntl.ioctl(listener, _SEND, response)

    def _judge(self, watch: CallWatch, listener: int, thread: int, call: str, arguments: list[int]) -> int | None:
        try:
            point, pid = self._point(listener, thread, call, arguments)
        except (OSError, ValueError):  # the process was killed meanwhile, and any read of /proc may fail
            return 0
        return 0 if point is None else watch.see(Moment(point, pid, dict(self._introduced)))

    def _point(self, listener: int, thread: int, call: str, arguments: list[int]) -> tuple[Point | None, int]:
        pid = _process_of(thread)
        operand = _operand(thread, call, arguments)
        if operand is None:
            return None, pid
        name, root = self._names[listener]
        if pid != root:
            if operand == THREAD:
                return None, pid  # Go's runtime makes threads at random moments
            program = operand if call == "execve" else os.readlink(f"/proc/{pid}/exe")
            name = f"delegate {os.path.basename(program)}"
        return Point(name, call, _masked(operand)), pid


def _process_of(thread: int) -> int:
    for line in Path(f"/proc/{thread}/status").read_text().splitlines():
        if line.startswith("Tgid:"):
            return int(line.split()[1])
    raise ValueError(f"thread {thread} has no process")


def _operand(thread: int, call: str, arguments: list[int]) -> str | None:
    """Return the operand of a call; None if no other process can observe the call, such as a process's own wake-up."""
    if call in ("bind", "connect"):
        return _address(thread, arguments[1])
    if call in ("clone", "clone3"):
        flags = arguments[0] if call == "clone" else int.from_bytes(_memory(thread, arguments[0], 8), "little")
        return THREAD if flags & _CLONE_THREAD else "a process"
    if call in DESCRIPTORS:
        return _descriptor(thread, arguments[0])
    if call in PATHS:
        path = _text(thread, arguments[PATHS[call]])
        return None if path.startswith(_NOT_STATE) or "__pycache__" in path else path
    return ""


def _descriptor(thread: int, fd: int) -> str | None:
    target = os.readlink(f"/proc/{thread}/fd/{fd}")
    if target.startswith("socket:"):
        return _socket(thread, fd)
    return None if target.startswith(_NOT_STATE) or "__pycache__" in target else target


def _socket(thread: int, fd: int) -> str | None:
    """Return a name for a socket to the kernel or to Railnet's other process; None for sockets of gRPC and asyncio."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(_process_of(thread))
    try:
        copy: int = libc.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0)
    finally:
        os.close(pidfd)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    with socket.socket(fileno=copy) as opened:
        if opened.family == socket.AF_NETLINK:
            return "netlink"
        if opened.family != socket.AF_UNIX:
            return None
        names = [str(opened.getsockname())]
        with contextlib.suppress(OSError):
            names.append(str(opened.getpeername()))
    ours = any(name.startswith(_OWN_SOCKET) for name in names)
    return "socket" if ours else None


def _address(thread: int, address: int) -> str | None:
    """Return the path of an AF_UNIX socket address in the process's memory (unix(7)); None for other addresses."""
    if int.from_bytes(_memory(thread, address, 2), sys.byteorder) != socket.AF_UNIX:
        return None  # the number of a netlink socket is no state
    path = _text(thread, address + 2)
    return path if path.startswith(_OWN_SOCKET) else None


def _memory(thread: int, address: int, length: int) -> bytes:
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(length)


def _text(thread: int, address: int) -> str:
    """Read a string from a process's memory, page by page, because the next page may not be mapped."""
    text = b""
    while b"\0" not in text and len(text) < _PATH_BYTES:
        text += _memory(thread, address + len(text), _PATH_BYTES - (address + len(text)) % _PATH_BYTES)
    return os.fsdecode(text.split(b"\0")[0])


def _masked(text: str) -> str:
    for pattern, name in _NAMES:
        text = re.sub(pattern, name, text)
    return text
