"""A load generator for CNI plugins: executes them as cheaply as Python can, so that it disturbs a measurement little.

`runtime` and `cni_config` compose the environment and the stdin of a plugin.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from simnode.kubernetes import cni_config
from simnode.kubernetes.runtime import Runtime, Sandbox


class Executed(NamedTuple):
    """One finished plugin: its wait status and its stdout."""

    status: int
    printed: bytes


class Timed(NamedTuple):
    """One call's time and answer; `began` is in seconds since all calls were released."""

    began: float
    milliseconds: float
    answer: Any


def execute(
    runtime: Runtime,
    command: str,
    sandbox: Sandbox,
    network: cni_config.NetworkList,
    plugin: Mapping[str, Any],
    result: bytes | None = None,
) -> Executed:
    """Execute one plugin of a network; `result` is its prevResult."""
    stdin = cni_config.stdin(network, plugin, sandbox.capability_args, result)
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    os.write(in_write, stdin)  # it fits into the pipe's buffer, so that the write does not block
    os.close(in_write)
    executable = f"/opt/cni/bin/{plugin['type']}"
    actions = [(os.POSIX_SPAWN_DUP2, in_read, 0), (os.POSIX_SPAWN_DUP2, out_write, 1)]
    pid = os.posix_spawn(executable, [executable], runtime.environment(command, sandbox), file_actions=actions)
    os.close(in_read)
    os.close(out_write)
    with os.fdopen(out_read, "rb") as output:
        printed = output.read()
    _, status = os.waitpid(pid, 0)
    return Executed(status, printed)


def at_once(calls: Sequence[Callable[[], Any]]) -> tuple[float, list[Timed]]:
    """Make all calls at the same moment, each on a thread; return the seconds in all, and time and answer of each call."""
    start = threading.Barrier(len(calls) + 1)
    began_all = 0.0

    def timed(call: Callable[[], Any]) -> Timed:
        start.wait()
        began = time.perf_counter()
        answer = call()
        return Timed(began - began_all, (time.perf_counter() - began) * 1000, answer)

    with ThreadPoolExecutor(len(calls)) as pool:
        pending = [pool.submit(timed, call) for call in calls]
        began_all = time.perf_counter()
        start.wait()
        answers = [one.result() for one in pending]
        return time.perf_counter() - began_all, answers
