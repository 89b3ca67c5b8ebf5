"""The order in which gangs get their place: by priority, then by turns of the namespaces, then by age.

When a gang gets its place, the younger gangs of its namespace go behind all others that wait at that moment. So a namespace with many gangs
does not have all room, and no gang waits for ever: it is put back only when an older one of its namespace is served. The planner and
`railnet train top` sort by it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """A gang that waits."""

    @property
    def namespace(self) -> str:
        """The namespace of its pods."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def priority(self) -> int:
        """The lowest priority of its pods."""

    @property
    def since(self) -> float:
        """When its oldest pod was created."""

    @property
    def queued(self) -> float:
        """When an older gang of its namespace last got its place; earlier than `since` if none did since then."""


_Gang = TypeVar("_Gang", bound=Queued)


class Turns(Generic[_Gang]):
    """The gangs in their order, which changes while some of them get a place.

    Iterate over it, and call `take_place` after a gang that has got its place.
    """

    def __init__(self, gangs: Iterable[_Gang]) -> None:
        """Sort gangs: of each priority by namespace, and of each namespace by age."""
        self._priorities: dict[int, dict[str, deque[_Gang]]] = {}
        self._has_place = False
        for gang in sorted(gangs, key=lambda gang: (-gang.priority, gang.since, gang.name)):
            self._priorities.setdefault(gang.priority, {}).setdefault(gang.namespace, deque()).append(gang)

    def __iter__(self) -> Iterator[_Gang]:
        """Yield each gang once."""
        for namespaces in self._priorities.values():
            yield from self._of(namespaces)

    def take_place(self) -> None:
        """Take in that the gang that was yielded last has got its place: it is the turn of the other namespaces."""
        self._has_place = True

    def _of(self, namespaces: dict[str, deque[_Gang]]) -> Iterator[_Gang]:
        turns = [(0, _position(gangs[0]), namespace) for namespace, gangs in namespaces.items()]
        heapify(turns)
        while turns:
            served, _, namespace = heappop(turns)
            gangs = namespaces[namespace]
            self._has_place = False
            yield gangs.popleft()
            if gangs:
                heappush(turns, (served + self._has_place, _position(gangs[0]), namespace))


def in_turn(gangs: Iterable[_Gang]) -> list[_Gang]:
    """Sort gangs as they are served if each of them finds a place."""
    turns, order = Turns(gangs), []
    for gang in turns:
        order.append(gang)
        turns.take_place()
    return order


def _position(gang: Queued) -> tuple[float, float]:
    return max(gang.since, gang.queued), gang.since
