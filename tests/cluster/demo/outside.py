"""The part of the demo that runs on the machine: it starts the other one, ends it at Ctrl-C, and counts what is left over."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from railnet.errors import Misconfigured
from simnode.demo import machine
from simnode.linux import libc
from tests.cluster.demo.cluster import LOGS, PAGE
from tests.cluster.demo.inside import PLAYED

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GROUPS = Path("/sys/fs/cgroup")
_INTERRUPTED = 130
_MARK = ".made-by-a-demo"


def run(folder: Path, *, keep: bool) -> int:
    """Run the demo; return 0 if all steps have succeeded and nothing is left over, 130 if it was interrupted before that, else 1.

    Args:
        folder: for what a person may look at. The page stays there, and logs after a failure.
        keep: the cluster stays until Ctrl-C.

    Raises:
        Misconfigured: another demo uses the folder.
    """
    began = time.monotonic()
    with _own(folder):
        libc.adopt_orphans()  # all processes of the demo stay below this process, so that other programs do not count
        before = machine.look()
        status, process = _play(folder, keep=keep)
        left = machine.added_since(before) + _groups(process)
        _print_end(left, time.monotonic() - began)
        if (folder / LOGS).exists():
            sys.stdout.write(f"  the logs of all programs and pods are in {folder / LOGS}\n")
    return status or int(bool(left))


@contextlib.contextmanager
def _own(folder: Path) -> Iterator[None]:
    """Have the folder, empty, for this demo alone; at the end only page and logs stay, and the mark of a demo's folder.

    Raises:
        Misconfigured: another demo uses the folder, or another program's files are in it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / _MARK).exists() and any(folder.iterdir()):
        raise Misconfigured(
            f"{folder} has files that no demo made, and a demo empties its folder; move them away, or set RAILNET_CACHE to another folder"
        )
    folder.chmod(0o700)
    (folder / _MARK).touch()
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Misconfigured(f"another demo uses {folder}; end it, or set RAILNET_CACHE to another folder") from None
    try:
        _remove_all_but(folder, (_MARK,))
        yield
    finally:
        _remove_all_but(folder, (_MARK, PAGE, LOGS))
        os.close(lock)


def _remove_all_but(folder: Path, names: tuple[str, ...]) -> None:
    for path in folder.iterdir():
        if path.name in names:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _play(folder: Path, *, keep: bool) -> tuple[int, int]:
    """Run the other part to its end; return the demo's status, and the process that made the control groups."""
    temporary = folder / "temporary"
    temporary.mkdir()
    with contextlib.ExitStack() as closing:
        inside, fds = [sys.executable, "-m", "tests.cluster.demo", "--inside", f"--folder={folder}"], []
        if keep:
            listener = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
            fds.append(listener.fileno())
            inside.append(f"--listener={listener.fileno()}")
        process = subprocess.Popen(
            [sys.executable, "-m", "simnode", "exec", "--cgroups", "--", *inside],
            stdin=subprocess.PIPE,  # its end tells the other part that this process has ended
            pass_fds=fds,
            env={**os.environ, "TMPDIR": str(temporary)},
            start_new_session=True,  # a terminal's Ctrl-C is for this process alone
        )
        interrupted = _wait(process)
    if interrupted:
        sys.stdout.write("\n  ended by a signal\n")
        return (0 if (folder / PLAYED).exists() else _INTERRUPTED), process.pid
    return process.returncode, process.pid


def _wait(process: "subprocess.Popen[bytes]") -> bool:
    """Wait for the end of a process, which each signal that ends a program brings about; return whether one did."""
    interrupted = False

    def end(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        process.terminate()

    before = {number: signal.signal(number, end) for number in _ENDS}
    try:
        process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return interrupted


def _groups(process: int) -> list[str]:
    """Return the control groups that `simnode exec` as this process has left."""
    return [f"control group {path} is left over" for path in _GROUPS.glob(f"**/simnode-{process}")]


def _print_end(left: list[str], seconds: float) -> None:
    mark = "✗" if left else "✓"
    sys.stdout.write(
        f"  {mark} left over: {len(left)}  (links, namespaces, mounts, processes, control groups, files)\n"
    )
    sys.stdout.write("".join(f"      {item}\n" for item in left))
    sys.stdout.write(f"  in all {seconds:.1f} s\n")
    sys.stdout.flush()
