"""The simulation: gangs arrive, wait, run and end; after each of these a policy is asked for every gang that waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from itertools import count

from simnode.placement.fabric import Fabric
from simnode.placement.gangs import Gang
from simnode.placement.policy import MakePolicy
from simnode.placement.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Run:
    """How one gang ran: when it was bound, and the node of each rank."""

    gang: Gang
    bound: float
    nodes: tuple[int, ...]

    @property
    def ended(self) -> float:
        """Return when its pods were gone."""
        return self.bound + self.gang.runs


@dataclass(frozen=True, slots=True)
class Result:
    """What came of all gangs.

    Attributes:
        waiting: gangs that were never bound though nothing runs any more.
        refused: how often the scheduler found no room where the policy had pinned a gang.
    """

    runs: tuple[Run, ...]
    waiting: tuple[Gang, ...]
    refused: int


class _What(Enum):
    ARRIVES = auto()
    ENDS = auto()
    NOTHING = auto()  # but the policy is asked again


def simulate(fabric: Fabric, gangs: Sequence[Gang], policy: MakePolicy, seed: int) -> Result:
    """Let gangs arrive until all have ended or nothing can happen any more; `seed` decides between equal nodes."""
    simulation = _Simulation(fabric, policy, seed)
    for gang in gangs:
        simulation.at(gang.arrives, _What.ARRIVES, gang)
    return simulation.run()


class _Simulation:
    def __init__(self, fabric: Fabric, policy: MakePolicy, seed: int) -> None:
        self._scheduler = Scheduler(fabric, seed)
        self._policy = policy(self._scheduler)
        self._events: list[tuple[float, int, _What, Gang | None]] = []
        self._numbers = count()  # events of one moment happen in the order in which they became known
        self._waiting: dict[str, Gang] = {}
        self._runs: dict[str, Run] = {}
        self._refused = 0
        self._asked: set[float] = set()

    def at(self, time: float, what: _What, gang: Gang | None = None) -> None:
        """Let something happen later."""
        heappush(self._events, (time, next(self._numbers), what, gang))

    def run(self) -> Result:
        """Let happen what is to happen."""
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                _, _, what, gang = heappop(self._events)
                self._happen(what, gang)
            self._decide(now)
        return Result(tuple(self._runs.values()), tuple(self._waiting.values()), self._refused)

    def _happen(self, what: _What, gang: Gang | None) -> None:
        if gang is None:
            return
        if what is _What.ARRIVES:
            self._waiting[gang.name] = gang
            return
        self._scheduler.release(gang.vfs, self._runs[gang.name].nodes)
        self._policy.ended(gang)

    def _decide(self, now: float) -> None:
        for gang, pins in self._policy.decide(tuple(self._waiting.values()), now):
            nodes = self._scheduler.bind(gang.vfs, pins)
            if nodes is None:
                self._refused += 1
                continue
            del self._waiting[gang.name]
            self._runs[gang.name] = Run(gang, now, tuple(nodes))
            self._policy.bound(gang, nodes)
            self.at(now + gang.runs, _What.ENDS, gang)
        again = self._policy.again()
        if self._waiting and again is not None and again not in self._asked:
            self._asked.add(again)
            self.at(again, _What.NOTHING)
