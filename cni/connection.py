"""The daemon's end of one connection: receives REQUEST, sends EXEC, receives OUTPUT, sends DONE.

The plugin executable at the other end runs delegates on the host. This module does not decide when a request ends, or what it means.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from errno import EMFILE
from functools import partial
from typing import TypeVar

from cni.cancellation_shield import to_the_end
from cni.delegate_slots import GOING_ON, NEW, UNDO, DelegateSlots
from cni.flannel_shortcut import FLANNEL, FlannelDelegates, FlannelRun
from cni.host import chain, frames
from cni.host.environment import DEL
from cni.host.errors import DELEGATE_BROKE, TRY_AGAIN, CniError
from cni.host.frames import FrameError
from cni.timing import timed
from railnet.kernel.threads.file_reads import read_in_time

_Result = TypeVar("_Result")

_CHUNK = 65536
_FLANNELS_FILES = "the files of flannel"
_FRAME_SECONDS = 1.0  # a peer on this machine that has begun a frame has no reason to take longer
_MAX_INBOX = frames.HEADER_BYTES + frames.MAX_PAYLOAD
_DESCRIPTOR_BYTES = 4  # an int
# An executable that hears nothing for so long serves a pod without a rail alone: 1 s less what a chain of plugins needs in the
# interpreter. A sign of life comes three times in it, so that a loop that is late once is not taken for stopped.
_SILENCE_SECONDS = 0.75
_ALIVE_SECONDS = _SILENCE_SECONDS / 3
_ENDING_SECONDS = 5.0  # SIGKILL has been sent: the executable only has to reap


class ExecutableGone(Exception):
    """The executable has ended or does not read: the runtime takes the request for failed, whatever is answered."""


class ExecutableConnection:
    """One connection from an executable. Owns its socket and, until `close`, the netns descriptor that came with it."""

    def __init__(
        self, connection: socket.socket, delegate_seconds: float, slots: DelegateSlots, flannel: FlannelDelegates
    ) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._delegate_seconds = delegate_seconds
        self._slots = slots
        self._flannel = flannel
        self._number = 0
        self._inbox = bytearray()  # what has arrived of a frame: a wait that is cancelled loses nothing
        self._reading = False
        self._begun = False
        self._gone: str | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._raw_environment: dict[bytes, bytes] = {}
        self._asked_for_alive = False
        self._allows_exec_delegate = False
        self._alive: asyncio.TimerHandle | None = None
        self._quiet = False  # a frame is half sent, or the executable runs a delegate and awaits only a KILL
        self.netns_fd: int | None = None
        self._on_gone: Callable[[], None] = _do_nothing
        self._answered: float | None = None

    def ended(self) -> float:
        """Return when the executable got its answer, in seconds of `time.monotonic`; without an answer, the present moment."""
        return time.monotonic() if self._answered is None else self._answered

    def when_gone(self, act: Callable[[], None]) -> None:
        """Call `act` as soon as the executable goes away before it has its answer."""
        self._on_gone = act
        if self._gone is not None:
            act()

    def close(self) -> None:
        """Close what is owned; the executable sees the end of the connection."""
        self._close_netns()
        self._end_alive()
        self._stop_reading()
        if self._socket.fileno() >= 0:
            # A frame may be half sent: its writer must not stay registered under a number that another socket gets next.
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()

    def _close_netns(self) -> None:
        if self.netns_fd is not None:
            os.close(self.netns_fd)
            self.netns_fd = None

    async def request(self) -> tuple[dict[bytes, bytes], bytes] | None:
        """Receive the first frame. Return a REQUEST's environment and stdin, and keep its descriptor; None for a QUERY.

        Raises:
            FrameError: another frame came. ExecutableGone, TimeoutError: the executable is gone or stuck.
        """
        self._read()  # nearly always all of it has arrived by now
        kind, payload = await self._receive_in_time()
        if kind == frames.QUERY:
            return None
        if kind != frames.REQUEST:
            raise FrameError(f"frame {kind} came in place of REQUEST")
        environ, stdin = frames.parse_blobs(payload, 2)
        self._raw_environment = frames.parse_environ(environ)
        self._asked_for_alive = frames.asks_for_alive(environ)
        self._allows_exec_delegate = frames.allows_exec_delegate(environ)
        return self._raw_environment, stdin

    async def handshake(self, limit_seconds: float) -> None:
        """Send HELLO with the request's time limit, and receive GO: the executable still waits for an answer.

        Raises:
            FrameError, ExecutableGone, TimeoutError: it does not wait any more.
        """
        silence = frames.u32(int(_SILENCE_SECONDS * 1000)) if self._asked_for_alive else b""
        await self._send(frames.HELLO, frames.u32(int(limit_seconds * 1000)) + silence)
        kind, _ = await self._receive_in_time()
        if kind != frames.GO:
            raise FrameError(f"frame {kind} came in place of GO")
        if self._asked_for_alive:
            self._alive = self._loop.call_later(_ALIVE_SECONDS, self._send_alive)

    def _send_alive(self) -> None:
        """Tell the executable that this daemon works on its request."""
        self._alive = self._loop.call_later(_ALIVE_SECONDS, self._send_alive)
        if self._gone is None and not self._quiet:
            with suppress(OSError):  # the executable does not read, or is gone: the request itself notices
                self._socket.send(frames.frame(frames.ALIVE))

    def _end_alive(self) -> None:
        if self._alive is not None:
            self._alive.cancel()
            self._alive = None

    async def drive(self, steps: Generator[chain.Exec, chain.ExecOutput, _Result]) -> _Result:
        """Have the executable run everything that a chain yields. Return the chain's result.

        An error of a step, or a cancellation, is thrown into the chain, which undoes what ran; then it is raised here.
        Without an executable, or with one that breaks the protocol, nothing can be undone.

        Raises:
            CniError: what the chain raises. ExecutableGone, FrameError.
        """
        cancelled: asyncio.CancelledError | None = None
        try:
            step = next(steps)
            while True:
                try:
                    step = steps.send(await self._execute(step))
                except asyncio.CancelledError as error:
                    cancelled = cancelled or error
                    step = steps.throw(CniError(TRY_AGAIN, "the request was cancelled"))
                except CniError as error:
                    step = steps.throw(error)
        except StopIteration as stop:
            if cancelled is not None:
                raise cancelled from None
            result: _Result = stop.value
            return result
        except CniError as error:
            if cancelled is not None:
                raise cancelled from error
            raise

    async def done(self, status: int, stdout: bytes) -> None:
        """Close the netns descriptor, then have the executable print the answer and exit.

        Raises:
            ExecutableGone: the answer cannot be delivered.
        """
        self._close_netns()
        await self.done_early(status, stdout)

    async def done_early(self, status: int, stdout: bytes) -> None:
        """Have the executable print the answer and exit, and keep the netns descriptor until `close`: work still needs it.

        Raises:
            ExecutableGone: the answer cannot be delivered.
        """
        self._on_gone = _do_nothing
        self._end_alive()
        await self._send(frames.DONE, bytes((status,)) + frames.blobs(stdout))
        self._answered = time.monotonic()

    async def answer(self, report: bytes) -> None:
        """Answer a QUERY.

        Raises:
            FrameError: it is larger than a frame may be. ExecutableGone: the client does not wait for it any more.
        """
        await self._send(frames.ANSWER, report)

    async def _execute(self, step: chain.Exec) -> chain.ExecOutput:
        self._number += 1
        number = frames.u32(self._number)
        async with self._slots.slot(_urgency(step, self._number)):
            # Not before there is a slot: flannel's files may change while this waits for one.
            run = await self._flannel_run(step)
            kind, payload = self._exec_frame(step, number, run)
            with timed("delegate"):
                output = await self._executed(kind, number, payload)
        if run is not None and run.configuration is not None and output.status == 0:
            again = await self._flannel_run(step)
            with suppress(OSError):
                await read_in_time(_FLANNELS_FILES, partial(run.succeeded, again))
        return output

    async def _flannel_run(self, step: chain.Exec) -> FlannelRun | None:
        """Look at flannel's files on the host; if they cannot be read, flannel says why itself."""
        if step.plugin != FLANNEL:
            return None
        with suppress(OSError):
            return await read_in_time(_FLANNELS_FILES, partial(self._flannel.run, step, self._raw_environment))
        return None

    def _exec_frame(self, step: chain.Exec, number: bytes, run: FlannelRun | None) -> tuple[int, bytes]:
        environ = frames.environ_blob({**self._raw_environment, **step.environ()})
        kind, payload = frames.EXEC, number + frames.blobs(step.plugin.encode(), environ, step.stdin)
        if run is not None and run.delegated is not None and self._allows_exec_delegate:
            plugin, path, state = run.delegated
            kind, payload = frames.EXEC_DELEGATE, payload + frames.blobs(plugin.encode(), os.fsencode(path), state)
        if len(payload) > frames.MAX_PAYLOAD:
            what = f"configuration and prevResult for plugin {step.plugin!r}"
            raise CniError(DELEGATE_BROKE, f"{what} are {len(payload)} bytes; {frames.MAX_PAYLOAD} are the most")
        return kind, payload

    async def _executed(self, kind: int, number: bytes, payload: bytes) -> chain.ExecOutput:
        self._quiet = True
        try:
            return await self._executed_or_killed(kind, number, payload)
        finally:
            self._quiet = False

    async def _executed_or_killed(self, kind: int, number: bytes, payload: bytes) -> chain.ExecOutput:
        try:
            await self._send(kind, payload)  # a cancellation comes after the whole frame: the plugin runs
            async with asyncio.timeout(self._delegate_seconds):
                return await self._output(number)
        except TimeoutError:
            return await to_the_end(self._kill(number), _ENDING_SECONDS)
        except asyncio.CancelledError:
            await to_the_end(self._kill(number), _ENDING_SECONDS)
            raise

    async def _kill(self, number: bytes) -> chain.ExecOutput:
        await self._send(frames.KILL, number)
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                output = await self._output(number)
        except TimeoutError:
            raise ExecutableGone("the executable has not ended the delegate after a KILL") from None
        return chain.ExecOutput(chain.TIMED_OUT, output.stdout, output.stderr)

    async def _output(self, number: bytes) -> chain.ExecOutput:
        kind, payload = await self._receive()
        if kind != frames.OUTPUT or payload[:4] != number:
            raise FrameError(f"frame {kind} came in place of OUTPUT {int.from_bytes(number, 'big')}")
        stdout, stderr = frames.parse_blobs(payload[8:], 2)
        return chain.ExecOutput(int.from_bytes(payload[4:8], "big", signed=True), stdout, stderr)

    async def _send(self, kind: int, payload: bytes = b"") -> None:
        frame = frames.frame(kind, payload)
        try:
            # Nearly always the socket's buffer takes all of it. A task, a shield and a timer would cost 50 µs, thrice an ADD.
            left = frame[self._sent(frame) :]
            if left:
                async with asyncio.timeout(_FRAME_SECONDS):
                    # After half a frame the peer could not read the next one: a cancellation waits for the whole.
                    await to_the_end(self._loop.sock_sendall(self._socket, left), _ENDING_SECONDS)
        except OSError as error:  # TimeoutError included: the executable does not read
            raise ExecutableGone(str(error) or "the executable reads nothing") from None

    def _sent(self, frame: bytes) -> int:
        try:
            return self._socket.send(frame)
        except BlockingIOError:
            return 0

    async def _receive_in_time(self) -> tuple[int, bytes]:
        if not frames.missing(self._inbox):
            return await self._receive()
        async with asyncio.timeout(_FRAME_SECONDS):
            return await self._receive()

    async def _receive(self) -> tuple[int, bytes]:
        while frames.missing(self._inbox):
            if self._gone is not None:
                raise ExecutableGone(self._gone)
            self._read_on()
            self._arrived = self._loop.create_future()
            await self._arrived
        kind, payload = frames.take_first(self._inbox)
        if self._gone is None:
            self._read_on()
        return kind, payload

    def _read_on(self) -> None:
        if not self._reading:
            # By its number: for a socket that is not registered yet, `selectors` writes the socket's whole repr for an error.
            self._loop.add_reader(self._socket.fileno(), self._read)
            self._reading = True

    def _stop_reading(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._socket.fileno())
            self._reading = False

    def _read(self) -> None:
        """Take what has arrived; always, so that the executable's end is seen whatever its request waits for."""
        try:
            chunk = self._socket.recv(_CHUNK) if self._begun else self._receive_beginning()
        except BlockingIOError:
            return
        except OSError as error:
            self._end(str(error))
            return
        if not chunk:
            self._end("the executable is gone")
            return
        self._inbox += chunk
        if len(self._inbox) > _MAX_INBOX:
            self._stop_reading()  # more than any frame: the rest stays in the socket's buffer
        self._wake()

    def _end(self, why: str) -> None:
        self._stop_reading()
        self._gone = why
        self._wake()
        self._on_gone()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():  # cancelled in the same round of the loop
            self._arrived.set_result(None)

    def _receive_beginning(self) -> bytes:
        """Take what has arrived first, with the descriptor: it arrives with the first byte of its message.

        Raises:
            OSError: EMFILE, this process has no number left for it; or as recvmsg(2).
        """
        # Not socket.recv_fds: Python 3.11's drops the flags, and a child of the daemon would pin the namespace.
        room = socket.CMSG_LEN(_DESCRIPTOR_BYTES)  # CMSG_SPACE would round up to two
        chunk, control, flags, _ = self._socket.recvmsg(_CHUNK, room, socket.MSG_CMSG_CLOEXEC)
        self._begun = True
        for _level, _kind, data in control:
            self.netns_fd = int.from_bytes(data[:_DESCRIPTOR_BYTES], sys.byteorder)
        if flags & socket.MSG_CTRUNC and self.netns_fd is None:
            raise OSError(EMFILE, "no descriptor is left for a sandbox's network namespace")
        return chunk


def _do_nothing() -> None:
    pass


def _urgency(step: chain.Exec, number: int) -> int:
    if step.command == DEL:
        return UNDO
    return NEW if number == 1 else GOING_ON
