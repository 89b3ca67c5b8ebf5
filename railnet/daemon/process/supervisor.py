"""The daemon's supervisor: starts the daemon as a child process, and ends a daemon with a silent event loop.

kubelet calls Allocate in its main loop without a deadline: while the daemon hangs and does not end, the node starts and ends no pod, and
kubelet acts on no probe (docs/decisions/0038). The end of the daemon ends such a call.

A program of its own: `supervise` replaces the process of `railnet node` by it. Only the standard library is imported, and of it little:
this process lives as long as the container, has 3 MiB for itself (`scripts/bench memory`), and does nothing that can hang.
"""

import os
import select
import stat
import sys
import time

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from typing import NoReturn
else:
    import _signal as signal  # the module `signal` without its enumerations, which take a quarter of this process's own memory

_LOCK = "/run/railnet/daemon.lock"  # railnet/daemon/process/single_instance.py, which this process does not import
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_DEATH_LOOK_SECONDS = 0.01
_BUFFER = 4096


class SupervisorLimits:
    """Times in seconds, and how many daemons in succession may end before they beat.

    Attributes:
        silence: how long a daemon that has beaten may be silent.
        start: how long a new daemon may take until its first beat: imports, on a machine that does much else.
        tick: how often the supervisor looks; a look counts at most two ticks.
        served: after so long, a daemon counts as good, and the pauses begin again.
        death: how long a killed daemon may take to end before the next one is started beside it.
        pauses: before the restarts that follow one another; the last pause is repeated.
        starts: daemons in succession that end by a signal before the first beat; then the supervisor ends, too.
    """

    silence = 3.0
    start = 30.0
    tick = 0.25
    served = 60.0
    death = 1.0
    pauses: "tuple[float, ...]" = (0.0, 1.0, 2.0, 5.0)
    starts = 3


class _DaemonProcess:
    """One daemon process, and the reading end of its pipe."""

    def __init__(self, command: "Sequence[str]", restarts: int) -> None:
        beats, far_end = os.pipe()
        os.set_inheritable(far_end, True)
        try:
            self.pid = os.posix_spawn(
                command[0],
                [*command, str(far_end), str(restarts)],  # railnet/daemon_process.py
                os.environ,
                setsid=True,  # a terminal's Ctrl-C is the supervisor's, which passes it on
                setsigdef=_PASSED_ON,
            )
        except BaseException:
            os.close(beats)
            raise
        finally:
            os.close(far_end)
        os.set_blocking(beats, False)
        self.beats = beats
        self.began = time.monotonic()
        self.has_beaten = False
        self.silence = 0.0

    def status(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process exists. After a status, the pid is not ours any more."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def hear(self, seconds: float) -> None:
        """Note a beat, or `seconds` more of silence."""
        if _drained(self.beats):
            self.has_beaten, self.silence = True, 0.0
        else:
            self.silence += seconds

    def is_silent(self, limits: SupervisorLimits) -> bool:
        return self.silence >= (limits.silence if self.has_beaten else limits.start)


class Supervisor:
    """Keeps one daemon running; `run` is called once, in the main thread."""

    def __init__(self, command: "Sequence[str]", limits: SupervisorLimits, lock: str = _LOCK) -> None:
        """Supervise `command`; its first word is a path. `lock` is a file: the daemon that has its lock is the only one of the node."""
        self._command, self._limits, self._lock = command, limits, lock
        self._asked_to_end: list[int] = []
        self._wakeups, self._wakeup = os.pipe()
        for fd in (self._wakeups, self._wakeup):
            os.set_blocking(fd, False)

    def run(self) -> int:
        """Return the daemon's exit status when it has ended by itself or at SIGTERM or SIGINT; 128 + n if signal n ended it."""
        self._receive_signals()
        ends = starts = restarts = 0
        while True:
            daemon = _DaemonProcess(self._command, restarts)
            status = self._until_end(daemon)
            if self._asked_to_end or status >= 0:
                return status if status >= 0 else 128 - status
            starts = 0 if daemon.has_beaten else starts + 1
            if starts == self._limits.starts:
                _say(
                    "ERROR",
                    f"{starts} daemons in succession ended before their event loop ran: the container ends, too",
                )
                return 128 - status
            ends = 1 if time.monotonic() - daemon.began >= self._limits.served else ends + 1
            restarts += 1
            self._pause(self._limits.pauses[min(ends, len(self._limits.pauses)) - 1])
            if self._asked_to_end:
                return 0
            _say("WARNING", f"starting the daemon again (restart {restarts} in this container)")

    def _until_end(self, daemon: _DaemonProcess) -> int:
        """Watch a daemon until it has ended, and return its status."""
        passed_on = 0
        try:
            while (status := daemon.status()) is None:
                for number in self._asked_to_end[passed_on:]:
                    os.kill(daemon.pid, number)
                passed_on = len(self._asked_to_end)
                daemon.hear(self._look(daemon.beats, self._limits.tick))
                if daemon.is_silent(self._limits):
                    return self._end(daemon)
        finally:
            os.close(daemon.beats)
        if status < 0 and not self._asked_to_end:
            _say("ERROR", f"the daemon (process {daemon.pid}) was ended by {_signal_name(-status)}")
        return status

    def _look(self, beats: int | None, seconds: float) -> float:
        """Wait for a beat or a signal, for `seconds` at most; return the time that counts as silence.

        If the machine was suspended, or had no time for this process, it had none for the daemon: that time does not count.
        """
        ready = select.poll()
        ready.register(self._wakeups, select.POLLIN)
        if beats is not None:
            ready.register(beats, select.POLLIN)
        began = time.monotonic()
        # The end of the pipe is no beat. The daemon ends now, and SIGCHLD comes.
        if any(fd == beats and not event & select.POLLIN for fd, event in ready.poll(seconds * 1000)):
            return self._look(None, seconds)
        _drained(self._wakeups)
        return min(time.monotonic() - began, 2 * seconds)

    def _pause(self, seconds: float) -> None:
        over = time.monotonic() + seconds
        while not self._asked_to_end and (left := over - time.monotonic()) > 0:
            self._look(None, left)

    def _end(self, daemon: _DaemonProcess) -> int:
        """End a silent daemon, and return its status; -SIGKILL also if the process cannot end yet."""
        from railnet.kernel.processes.pidfd_getfd import HeldDescriptors  # noqa: PLC0415 - it needs ctypes and socket, and is seldom used

        _say("ERROR", f"the daemon (process {daemon.pid}) is ended: {_why(daemon)}")
        try:
            held = HeldDescriptors(daemon.pid, {self._lock})
        except OSError as error:
            _say("WARNING", f"the daemon's connections end only with its process: {error}")
            return self._kill(daemon, lambda: None)
        try:
            held.shut_down_sockets()  # first: a call of kubelet ends now, also if the process cannot end
            return self._kill(daemon, held.unlock_files)
        finally:
            held.close()

    def _kill(self, daemon: _DaemonProcess, unlock: "Callable[[], None]") -> int:
        if daemon.has_beaten:
            os.kill(daemon.pid, signal.SIGUSR1)  # its threads' stacks, to the log (railnet/daemon/process/heartbeat.py)
            time.sleep(self._limits.tick / 2)
        os.kill(daemon.pid, signal.SIGKILL)
        over = time.monotonic() + self._limits.death
        while (status := daemon.status()) is None and time.monotonic() < over:
            time.sleep(_DEATH_LOOK_SECONDS)
        if status is not None:
            return status
        _say(
            "ERROR",
            f"the daemon (process {daemon.pid}) does not end: {_threads(daemon.pid)}; the next daemon takes its lock and its place",
        )
        unlock()  # only now: after SIGKILL, no thread of it returns from the kernel to the program
        return -signal.SIGKILL

    def _receive_signals(self) -> None:
        for number in _PASSED_ON:
            signal.signal(number, lambda caught, _frame: self._asked_to_end.append(caught))
        signal.signal(signal.SIGCHLD, lambda _caught, _frame: None)  # only its byte in the pipe is wanted
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)


def supervise(daemon: str, words: "Sequence[str]") -> "NoReturn":
    """Replace this process by the supervisor of a daemon: the module `daemon` with `words`, in an interpreter as this one is.

    Raises:
        OSError: the interpreter cannot be executed.
    """
    root = os.path.abspath(__file__)
    for _ in __name__.split("."):
        root = os.path.dirname(root)  # what is imported is below it
    options = _options()
    if sys.path[0] != root:
        options.append("-P")  # the working directory is searched for modules only if this program was found there
    command = (sys.executable, *options, "-m", daemon, *words)
    # Isolated and without site-packages: nothing else is imported, and the daemon's environment is as it was.
    os.execv(sys.executable, (sys.executable, "-IS", _program(), root, *command))


def _options() -> list[str]:
    """Return this interpreter's options: what is before `railnet`, without the `m` of `-m railnet` or `-Im railnet`."""
    options = sys.orig_argv[1 : -len(sys.argv)]
    last = options[-1] if options else ""
    if last.startswith("-") and last.endswith("m") and not {*last} & {"W", "X"}:  # with a value, which may end so
        options[-1:] = [] if last == "-m" else [last[:-1]]
    return options


def _program() -> str:
    """Return this module's bytecode, if there is any of this source: the supervisor would keep a compiler's memory, 0.7 MiB."""
    bytecode = __spec__.cached
    try:
        if bytecode and os.stat(bytecode).st_mtime >= os.stat(__file__).st_mtime:
            return bytecode
    except OSError:
        pass  # the folder cannot be written, or bytecode is switched off
    return __file__


def _drained(fd: int) -> bool:
    """Read all that a pipe has; return whether there was anything."""
    has_data = False
    try:
        while os.read(fd, _BUFFER):
            has_data = True
    except BlockingIOError:
        pass
    return has_data


def _why(daemon: _DaemonProcess) -> str:
    since = "its event loop has been silent for" if daemon.has_beaten else "its event loop has not begun after"
    return f"{since} {daemon.silence:.1f} s; {_threads(daemon.pid)}"


def _threads(pid: int) -> str:
    """Return in words in which state the kernel has a process's threads (proc_pid_status(5)), the main thread first."""
    states = []
    try:
        for thread in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
            with open(f"/proc/{pid}/task/{thread}/status") as file:
                states += [line.split(maxsplit=1)[1].strip() for line in file if line.startswith("State:")]
    except OSError:
        pass  # it is ending
    hung = sum(state.startswith("D") for state in states)
    main = states[0] if states else "not known"
    return f"its main thread's state is {main}, and {hung} of its {len(states)} threads hang in the kernel"


def _signal_name(number: int) -> str:
    import signal  # noqa: PLC0415 - with its enumerations

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _say(level: str, words: str) -> None:
    """Write a line as the daemon's log has them; `logging` would take as much memory as all the rest.

    If the log's pipe is full, because the container runtime does not read it, the line is lost: this process waits for no other one.
    """
    now = time.time()
    stamp = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))},{int(now * 1000) % 1000:03d}"
    try:
        os.write(_log(), f"{stamp} {level} railnet.daemon.process.supervisor: {words}\n".encode(errors="replace"))
    except OSError:
        return


def _log() -> int:
    """Return a descriptor of stderr to which a write does not wait; it is opened once."""
    if not _LOG:
        _LOG.append(2)
        if stat.S_ISFIFO(os.fstat(2).st_mode):  # opened again, since the daemon shares the flags of descriptor 2
            _LOG[0] = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return _LOG[0]


_LOG: list[int] = []


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    sys.exit(Supervisor(sys.argv[2:], SupervisorLimits()).run())
