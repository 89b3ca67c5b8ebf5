"""Run one delegate plugin as the runtime itself would run it: on the host, as a child of the executable."""

import posix
import select
import time

from cni.host import frames

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from cni.host.flannel_state_backup import DelegatedState, KeptState

_SIGKILL = 9
# Python ignores these two at start (Python/pylifecycle.c, init_signals); a delegate expects the default.
_SIGPIPE, _SIGXFSZ = 13, 25
_CHUNK = 65536
_DRAIN_READS = 128  # a grandchild may keep a pipe open and full: enough for twice the largest output


def find(plugin: str, path: list[str]) -> str:
    """Find the executable of a plugin type in the folders of CNI_PATH.

    Raises:
        FileNotFoundError: no folder has it.
    """
    for folder in path:
        candidate = f"{folder}/{plugin}"
        if posix.access(candidate, posix.X_OK) and not posix.access(candidate + "/.", posix.F_OK):
            return candidate
    raise FileNotFoundError(2, f"no folder of CNI_PATH {':'.join(path)} has it", plugin)  # 2: ENOENT


class Delegate:
    """One running plugin: write its stdin, read its output, end it. Owns its pipes and its process group.

    After a failed DEL of flannel's plugin, flannel's state is as before, for the next DEL (`cni.host.flannel_state_backup`).
    """

    def __init__(
        self, executable: str, environ: dict[bytes, bytes], stdin: bytes, state: "DelegatedState | None" = None
    ) -> None:
        """Start the plugin in a process group of its own, so that its children end with it. `state` learns how it ended.

        Raises:
            OSError: the plugin cannot be executed.
        """
        self.stdout, self.stderr = bytearray(), bytearray()
        self._stdin = memoryview(stdin)
        self._state = state or _state(executable, environ, stdin)
        inner, outer = _pipes()
        try:
            self._pid = posix.posix_spawn(
                executable,
                [executable],
                environ,
                file_actions=[(posix.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(inner)],
                setpgroup=0,
                setsigdef=(_SIGPIPE, _SIGXFSZ),
            )
        except OSError:
            _close(outer)
            if self._state is not None:
                self._state.ended(success=False)
            raise
        finally:
            _close(inner)
        self._in, self._out, self._err = outer
        self._pidfd = self._opened()
        for fd in outer:
            posix.set_blocking(fd, False)

    def _opened(self) -> int:
        """Open a descriptor to wait by. If that fails, kill the plugin: it has begun, so it counts as one that died."""
        try:
            return posix.pidfd_open(self._pid)
        except OSError as error:
            self.kill()
            self.stderr += f"it was ended, since it cannot be waited for: {error}".encode()
            return -1

    def kill(self) -> None:
        """Kill the plugin and its children."""
        posix.killpg(self._pid, _SIGKILL)

    def wait(self, deadline: float, interrupt_fd: int = -1) -> bool:
        """Serve the pipes until the plugin has ended; False when the deadline passed or `interrupt_fd` has something to read."""
        if self._pidfd < 0:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.register(self._out, select.POLLIN)
        poll.register(self._err, select.POLLIN)
        if self._in >= 0:
            poll.register(self._in, select.POLLOUT)
        if interrupt_fd >= 0:
            poll.register(interrupt_fd, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            ready = [fd for fd, _ in poll.poll(left * 1000)]
            self._serve(ready, poll)
            if self._pidfd in ready:
                return True
            if interrupt_fd in ready:
                return False

    def end(self) -> int:
        """Reap the plugin and close everything that belongs to it. Return the wait status.

        If the plugin still runs or has failed, its children are killed too: the undo of its work must not race with them.
        """
        if self._pidfd >= 0 and not select.select([self._pidfd], (), (), 0)[0]:
            self.kill()
        ended = posix.waitid(posix.P_PID, self._pid, posix.WEXITED | posix.WNOWAIT)
        if ended is None or (ended.si_code, ended.si_status) != (posix.CLD_EXITED, 0):
            self.kill()  # not reaped yet, so the process group still has its number
        _, status = posix.waitpid(self._pid, 0)
        self._drain()
        _close([fd for fd in (self._in, self._out, self._err, self._pidfd) if fd >= 0])
        self._in = -1
        if self._state is not None:
            self._state.ended(success=status == 0)
        return status

    def _serve(self, ready: list[int], poll: select.poll) -> None:
        if self._in in ready and self._in >= 0:
            self._feed(poll)
        for fd, into, limit in self._outputs():
            if fd in ready and not _collect(fd, into, limit):
                poll.unregister(fd)

    def _feed(self, poll: select.poll) -> None:
        try:
            self._stdin = self._stdin[posix.write(self._in, self._stdin[:_CHUNK]) :]
        except BrokenPipeError:  # the plugin does not read all of its stdin, which is no failure
            self._stdin = self._stdin[:0]
        except BlockingIOError:
            return
        if not self._stdin:
            poll.unregister(self._in)
            posix.close(self._in)
            self._in = -1

    def _drain(self) -> None:
        """Read what is left in the pipes, without waiting for a grandchild that keeps one open."""
        for fd, into, limit in self._outputs():
            for _ in range(_DRAIN_READS):
                if not select.select([fd], (), (), 0)[0] or not _collect(fd, into, limit):
                    break

    def _outputs(self) -> tuple[tuple[int, bytearray, int], ...]:
        # One byte more than allowed is kept: so an output that is too long is known from one that just fits.
        return (self._out, self.stdout, frames.MAX_STDOUT + 1), (self._err, self.stderr, frames.MAX_STDERR)


def _state(executable: str, environ: dict[bytes, bytes], stdin: bytes) -> "KeptState | None":
    """Keep flannel's state over a DEL; other commands do not load the module for it."""
    if environ.get(b"CNI_COMMAND") != b"DEL" or not executable.endswith("/flannel"):
        return None
    from cni.host import flannel_state_backup

    return flannel_state_backup.keep(environ, stdin)


def _collect(fd: int, into: bytearray, limit: int) -> bool:
    """Read once; False at the end of the pipe. Bytes over the limit are read and dropped."""
    try:
        data = posix.read(fd, _CHUNK)
    except BlockingIOError:
        return True
    into += data[: limit - len(into)]
    return bool(data)


def _pipes() -> tuple[list[int], list[int]]:
    """Make three pipes. Return the delegate's ends and ours, each as stdin, stdout, stderr."""
    (in_read, in_write), (out_read, out_write), (err_read, err_write) = posix.pipe(), posix.pipe(), posix.pipe()
    return [in_read, out_write, err_write], [in_write, out_read, err_read]


def _close(fds: list[int]) -> None:
    for fd in fds:
        posix.close(fd)
