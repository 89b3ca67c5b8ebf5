"""What a policy of placement is."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from simnode.placement.gangs import Gang
from simnode.placement.scheduler import Pin, Scheduler


class Decision(NamedTuple):
    """A gang that starts, and where its ranks are pinned."""

    gang: Gang
    pins: Sequence[Pin]


class Policy(Protocol):
    """Decides where gangs go; the scheduler binds their pods there."""

    def decide(self, waiting: Sequence[Gang], now: float) -> Iterator[Decision]:
        """Yield the gangs that start now. The pods of each are bound before the next is asked for."""

    def again(self) -> float | None:
        """Return when the next decision may be another though nothing happens until then."""

    def bound(self, gang: Gang, nodes: Sequence[int]) -> None:
        """Note the node of each rank."""

    def ended(self, gang: Gang) -> None:
        """Note that a gang's pods are gone."""


MakePolicy = Callable[[Scheduler], Policy]
