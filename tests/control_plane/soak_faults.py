"""The faults of a soak, and what stands in for kubelet: a leader that has ended is started again, and what each program takes is read."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

from simnode.chaos import webhook_flood
from simnode.chaos.job_pauses import Span
from simnode.chaos.soak_judgement import Part, Soaked
from simnode.chaos.soak_schedule import NODE_FAULTS, Fault, NodeFault, trouble
from tests.cluster.process import Program
from tests.control_plane import soak_node
from tests.control_plane.controllers import Controllers
from tests.control_plane.process_use import used_by
from tests.control_plane.proxy import Answer, ApiProxy, Passed, none, refused
from tests.control_plane.soak_node import RealNode

LIMIT_MIB = 256
"""Of the chart, for the controllers and the webhook."""

_WEBHOOK_PORT = 8443
_TICK_SECONDS = 0.25
_NODE_SECONDS = 2.0  # between two looks at the node's programs: each reads all of /proc
_SLOW_SECONDS = 0.5
_LEASE_SECONDS = 20.0  # after an API server was away, a leader may have lost its Lease, and ends


class Faults:
    """All faults of a soak, one after the other; one thread runs them."""

    def __init__(
        self,
        leader: Controllers,
        proxy: ApiProxy,
        programs: Mapping[str, Program],
        soaked: Soaked,
        node: RealNode | None = None,
    ) -> None:
        """Begin with a leader that leads through a proxy; `programs` are those beside it, `node` is the real node if there is one."""
        self._leader, self._proxy, self._programs, self._soaked, self._node = leader, proxy, programs, soaked, node
        self._seconds: dict[tuple[str, int], float] = {}
        self._excused = self._node_read = 0.0

    def run(self, ended: threading.Event) -> None:
        """Have faults until `ended` is set."""
        for number in count():
            fault = trouble(self._soaked.seed, number, real_node=self._node is not None)
            self._wait(fault.pause, ended)
            if ended.is_set():
                return
            if fault.kind in NODE_FAULTS:
                self._have_on_node(fault.kind)
            else:
                self._have(fault.kind, fault.seconds, ended)
            self._soaked.faults[fault.kind] += 1

    def _have_on_node(self, kind: NodeFault) -> None:
        """Have a fault of the real node, and look meanwhile: a restart takes seconds."""
        assert self._node is not None
        began = time.time()
        with ThreadPoolExecutor(1) as thread:
            fault = thread.submit(self._node.have, kind)
            while not fault.done():
                self._look()
                time.sleep(_TICK_SECONDS)
            fault.result()
        self._soaked.node_faults.append(Span(began, time.time()))

    def _have(self, kind: Fault, seconds: float, ended: threading.Event) -> None:
        with ExitStack() as undone:
            undone.callback(self._proxy_again)
            if kind == "leader killed":
                self._look()
                self._excuse()
                self._leader.kill()
                return
            if kind == "webhook flooded":
                undone.enter_context(webhook_flood.floods(_WEBHOOK_PORT))
            elif kind == "API server away":
                self._proxy.fault = _away
                undone.enter_context(self._proxy.without_watches())
            else:
                self._proxy.fault = (
                    _slow if kind == "API server slow" else refused(("pods", "services", "endpointslices"))
                )
            self._excuse(seconds)
            self._wait(seconds, ended)

    def _proxy_again(self) -> None:
        self._proxy.fault = none

    def _excuse(self, seconds: float = 0.0) -> None:
        self._excused = time.monotonic() + seconds + _LEASE_SECONDS

    def _wait(self, seconds: float, ended: threading.Event) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not ended.wait(_TICK_SECONDS):
            self._look()

    def _look(self) -> None:
        """Read what the programs take, and start a leader that has ended."""
        for name, process in self._processes():
            self._read(name, process)
        if self._leader.ended():
            if time.monotonic() > self._excused:
                end = self._leader.program.log()[-2000:]
                self._soaked.violations.append(
                    f"the controllers ended, and no fault had hit them; their log ends:\n{end}"
                )
            self._leader.stop()
            self._leader.start(self._proxy, hasty=False)

    def _processes(self) -> Iterator[tuple[str, int]]:
        for name, program in {**self._programs, "controllers": self._leader.program}.items():
            if program.process is not None and program.process.poll() is None:
                yield name, program.process.pid
        if self._node is not None and time.monotonic() >= self._node_read + _NODE_SECONDS:
            self._node_read = time.monotonic()
            yield from self._node.processes()

    def _read(self, name: str, process: int) -> None:
        try:
            now = used_by(process)
        except (OSError, IndexError):  # it has just ended
            return
        self._seconds[name, process] = now.seconds
        limit = soak_node.LIMIT_MIB if name == soak_node.DAEMON else _limit_mib(name)
        before = self._soaked.parts.get(name, Part(0, 0.0))
        seconds = sum(taken for (of, _), taken in self._seconds.items() if of == name)
        self._soaked.parts[name] = Part(max(before.peak_mib, now.most), round(seconds, 1), limit)


def _limit_mib(name: str) -> int | None:
    return LIMIT_MIB if name == "controllers" or name.startswith("webhook") else None


def _away(_: Passed) -> Answer:
    raise ConnectionAbortedError("the API server is away")


def _slow(passed: Passed) -> Answer:
    time.sleep(_SLOW_SECONDS)
    return passed.send()
