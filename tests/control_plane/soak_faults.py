"""The faults of a soak, and what stands in for kubelet: a leader that has ended is started again, and what each program takes is read."""

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import count

from simnode.chaos import webhook_flood
from simnode.chaos.soak_judgement import Part, Soaked
from simnode.chaos.soak_schedule import Fault, trouble
from tests.cluster.process import Program
from tests.control_plane.controllers import Controllers
from tests.control_plane.process_use import used
from tests.control_plane.proxy import Answer, ApiProxy, Passed, none, refused

LIMIT_MIB = 256
"""Of the chart, for the controllers and the webhook."""

_WEBHOOK_PORT = 8443
_TICK_SECONDS = 0.25
_SLOW_SECONDS = 0.5
_LEASE_SECONDS = 20.0  # after an API server was away, a leader may have lost its Lease, and ends


class Faults:
    """All faults of a soak, one after the other; one thread runs them."""

    def __init__(self, leader: Controllers, proxy: ApiProxy, programs: Mapping[str, Program], soaked: Soaked) -> None:
        """Begin with a leader that leads through a proxy; `programs` are those beside it."""
        self._leader, self._proxy, self._programs, self._soaked = leader, proxy, programs, soaked
        self._seconds: dict[tuple[str, int], float] = {}
        self._excused = 0.0

    def run(self, ended: threading.Event) -> None:
        """Have faults until `ended` is set."""
        for number in count():
            fault = trouble(self._soaked.seed, number)
            self._wait(fault.pause, ended)
            if ended.is_set():
                return
            self._have(fault.kind, fault.seconds, ended)
            self._soaked.faults[fault.kind] += 1

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
        for name, program in {**self._programs, "controllers": self._leader.program}.items():
            self._read(name, program)
        if self._leader.ended():
            if time.monotonic() > self._excused:
                end = self._leader.program.log()[-2000:]
                self._soaked.violations.append(
                    f"the controllers ended, and no fault had hit them; their log ends:\n{end}"
                )
            self._leader.stop()
            self._leader.start(self._proxy, hasty=False)

    def _read(self, name: str, program: Program) -> None:
        process = program.process
        if process is None or process.poll() is not None:
            return
        try:
            now = used(program)
        except (OSError, IndexError):  # it has just ended
            return
        self._seconds[name, process.pid] = now.seconds
        limit = LIMIT_MIB if name == "controllers" or name.startswith("webhook") else None
        before = self._soaked.parts.get(name, Part(0, 0.0))
        seconds = sum(taken for (of, _), taken in self._seconds.items() if of == name)
        self._soaked.parts[name] = Part(max(before.peak_mib, now.most), round(seconds, 1), limit)


def _away(_: Passed) -> Answer:
    raise ConnectionAbortedError("the API server is away")


def _slow(passed: Passed) -> Answer:
    time.sleep(_SLOW_SECONDS)
    return passed.send()
