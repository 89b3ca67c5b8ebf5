"""The executable's end of the socket: send the request, run delegates for the daemon, return the answer of DONE."""

import _socket
import time

from cni.host import frames
from cni.host.delegate import Delegate, find
from cni.host.environment import Environment
from cni.host.errors import TRY_AGAIN, CniError
from cni.host.lock import RUN, Lock

SOCKET = RUN + "/cni.sock"
HELLO_SECONDS = 1.0
_GRACE_SECONDS = 1.0  # the daemon keeps its own deadline; the executable waits a little longer
_EAGAIN = 11
_EINVAL = 22
_NOT_EXECUTED = 1  # EPERM, for an OSError without a number


class NoDaemon(Exception):
    """No daemon took the request: the socket is absent or refuses, its peer is not root, or no HELLO came in time."""


class RequestTooLarge(NoDaemon):
    """The request is larger than a REQUEST may be, so the daemon is not asked."""


class ExecutedDelegate:
    """A delegate that was run for the daemon: an EXEC's blobs and what came of it."""

    __slots__ = ("blobs", "status", "stderr", "stdout")

    def __init__(self, blobs: bytes, status: int, stdout: bytes, stderr: bytes) -> None:
        """Hold four values."""
        self.blobs = blobs
        self.status = status
        self.stdout = stdout
        self.stderr = stderr


class RequestLost(CniError):
    """The daemon took the request and then ended or sent no more.

    `executed` is what this executable has run for it, in order; None for a delegate that did not run to its end.
    """

    def __init__(self, what: str, executed: "list[ExecutedDelegate | None] | None" = None) -> None:
        super().__init__(TRY_AGAIN, f"Railnet's daemon {what} while it served this request; try again")
        self.executed = executed or []


def ask(
    environment: Environment, stdin: bytes, netns_fd: int, held: Lock, hello_seconds: float = HELLO_SECONDS
) -> tuple[int, bytes]:
    """Have the daemon serve the request. Return the exit status and what to print.

    The caller owns the netns descriptor (-1: none) and the lock; the lock is taken when the daemon sends the first EXEC.

    Raises:
        NoDaemon: nothing has happened and nothing will. RequestTooLarge: for this reason.
        RequestLost: the daemon began the request.
        CniError: code 11, the daemon speaks another version.
    """
    payload = frames.request(environment.raw, stdin)
    if len(payload) > frames.MAX_REQUEST:
        raise RequestTooLarge(f"the request has {len(payload)} bytes; the daemon takes {frames.MAX_REQUEST} at most")
    request = frames.frame(frames.REQUEST, payload)
    daemon = _DaemonConnection(held, hello_seconds)
    try:
        daemon.connect()
        daemon.send_with_descriptor(request, netns_fd)
        limit = daemon.hello()
        return daemon.serve(environment.path, limit)
    except frames.FrameError as error:
        raise CniError(TRY_AGAIN, f"Railnet's daemon answered strangely: {error}") from None
    finally:
        daemon.close()


def listens() -> bool:
    """Return whether a daemon of root accepts connections; whether it answers is not tried."""
    daemon = _DaemonConnection(Lock(""), HELLO_SECONDS)
    try:
        daemon.connect()
    except NoDaemon:
        return False
    finally:
        daemon.close()
    return True


class _DaemonConnection:
    """One connection; owns its socket."""

    def __init__(self, held: Lock, hello_seconds: float) -> None:
        self._lock = held
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        self._deadline = time.monotonic() + hello_seconds
        self._silence: float | None = None
        self._executed: list[ExecutedDelegate | None] = []

    def close(self) -> None:
        self._socket.close()

    def connect(self) -> None:
        try:
            self._socket.settimeout(self._left())
            self._socket.connect(SOCKET)
            credentials = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        except OSError as error:  # also EAGAIN: a stopped daemon whose backlog is full
            raise NoDaemon(f"{SOCKET}: {error.strerror}") from None
        # struct ucred is pid, uid, gid, 32 bits each (include/linux/socket.h); the kernel writes them in host order.
        if credentials[4:8] != b"\0\0\0\0":
            raise NoDaemon(f"{SOCKET} is not served by root")

    def send_with_descriptor(self, request: bytes, fd: int) -> None:
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fd.to_bytes(4, "little"))] if fd >= 0 else []
        try:
            self._socket.settimeout(self._left())
            sent = self._socket.sendmsg([request], rights)
            self._socket.sendall(request[sent:])
        except OSError as error:  # TimeoutError included
            raise NoDaemon(f"{SOCKET}: {error.strerror or error}") from None

    def hello(self) -> float:
        """Receive HELLO and send GO. Return the time when the whole request must be over."""
        try:
            kind, payload = self._receive()
            if kind != frames.HELLO:
                raise frames.FrameError(f"frame {kind} came in place of HELLO")
            seconds, self._silence = frames.parse_hello(payload)
            self._socket.settimeout(HELLO_SECONDS)
            self._socket.sendall(frames.frame(frames.GO))
        except (OSError, EOFError) as error:
            raise NoDaemon(f"{SOCKET}: no HELLO ({error})") from None
        return time.monotonic() + seconds + _GRACE_SECONDS

    def serve(self, path: list[str], deadline: float) -> tuple[int, bytes]:
        """Run what the daemon sends, until DONE."""
        self._deadline = deadline
        try:
            while True:
                kind, payload = self._receive()
                if kind == frames.DONE:
                    return frames.parse_done(payload)
                if kind in (frames.EXEC, frames.EXEC_DELEGATE):
                    count = 3 if kind == frames.EXEC else 6
                    output = self._execute(frames.parse_blobs(payload[4:], count), path)
                    self._send(frames.frame(frames.OUTPUT, payload[:4] + output))
                elif kind not in (frames.ALIVE, frames.KILL):  # a KILL may cross its delegate's OUTPUT: late, not wrong
                    raise frames.FrameError(f"frame {kind} makes no sense to the executable")
        except TimeoutError:
            raise RequestLost("fell silent", self._executed) from None
        except (OSError, EOFError):
            raise RequestLost("went away", self._executed) from None

    def _execute(self, blobs: list[bytes], path: list[str]) -> bytes:
        """Carry out an EXEC (three blobs) or an EXEC_DELEGATE (six). Return an OUTPUT's payload behind its number."""
        try:
            self._lock.take(self._socket.fileno())  # a KILL, or the daemon's end, also ends the wait for the lock
            delegate = _started(blobs, path)
        except CniError as error:
            return frames.i32(-_EAGAIN) + frames.blobs(b"", str(error).encode())
        except OSError as error:
            return frames.i32(-(error.errno or _NOT_EXECUTED)) + frames.blobs(b"", str(error).encode())
        status, killed = -1, False
        self._executed.append(None)
        try:
            while not delegate.wait(self._deadline, self._socket.fileno()):
                self._receive_kill()
                delegate.kill()
                killed = True
        finally:
            status = delegate.end()
        stdout, stderr = bytes(delegate.stdout[: frames.MAX_STDOUT]), bytes(delegate.stderr)
        if not killed:
            self._executed[-1] = ExecutedDelegate(frames.blobs(*blobs[:3]), status, stdout, stderr)
        return frames.i32(status) + frames.blobs(stdout, stderr)

    def _receive_kill(self) -> None:
        kind, _ = self._receive()
        if kind != frames.KILL:
            raise frames.FrameError(f"frame {kind} came while a plugin was running")

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._patience())
        self._socket.sendall(data)

    def _receive(self) -> tuple[int, bytes]:
        return frames.receive(self._receive_some)

    def _receive_some(self, count: int) -> bytes:
        self._socket.settimeout(self._patience())
        return self._socket.recv(count)

    def _patience(self) -> float:
        """Return how long to wait for the daemon's next byte: a daemon that promised signs of life and gives none is stopped."""
        left = self._left()
        return left if self._silence is None else min(left, self._silence)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is over")
        return left


def _started(blobs: list[bytes], path: list[str]) -> Delegate:
    """Start the plugin of an EXEC; of an EXEC_DELEGATE flannel's delegate, or flannel, if its state cannot be written.

    Raises:
        OSError: it cannot be executed. FrameError: a type is no text.
    """
    plugin, environ, stdin = blobs[0], frames.parse_environ(blobs[1]), blobs[2]
    if blobs[3:]:
        from cni.host import flannel_state_backup

        kind, state_path, state = blobs[3:]
        executable = find(_file_name(kind), path)
        if environ.get(b"CNI_COMMAND") == b"DEL":
            return Delegate(executable, environ, state, flannel_state_backup.DelegatedState(state_path))
        if flannel_state_backup.write(state_path, state):
            return Delegate(executable, environ, state)
    return Delegate(find(_file_name(plugin), path), environ, stdin)


def _file_name(plugin: bytes) -> str:
    if not plugin.isascii():
        raise frames.FrameError(f"{plugin!r} is not a plugin type")
    if b"/" in plugin or b"\0" in plugin:
        raise OSError(_EINVAL, "a plugin type is a name, never a path")
    return plugin.decode()
