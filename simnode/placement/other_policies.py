"""The policies that the planner is compared with, as models that see the scheduler's free VFs and nothing else.

All of them bind a gang whole or not at all, which is more than the systems do that they stand for: pods that the kube-scheduler binds one by
one hold their nodes while the rest waits.
"""

from collections.abc import Iterator, Sequence

from simnode.placement.gangs import Gang
from simnode.placement.policy import Decision
from simnode.placement.scheduler import Pin, Scheduler

_UNPINNED = Pin()
_BACKOFF_SECONDS = 10.0  # the kube-scheduler's podMaxBackoffSeconds


class _Rival:
    """A policy that asks for one gang after another, the oldest first; a gang that does not fit does not hold up those behind it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def decide(self, waiting: Sequence[Gang], now: float) -> Iterator[Decision]:
        """Yield the gangs that have room."""
        for gang in waiting:
            if pins := self._pins(gang, now):
                yield Decision(gang, pins)

    def again(self) -> float | None:
        """Return None: time alone changes nothing."""
        return None

    def bound(self, gang: Gang, nodes: Sequence[int]) -> None:
        """Ignore it: the scheduler knows."""

    def ended(self, gang: Gang) -> None:
        """Ignore it: the scheduler knows."""

    def _pins(self, gang: Gang, now: float) -> Sequence[Pin]:
        """Return the pin of each rank, or nothing if the gang must wait."""
        raise NotImplementedError

    def _leaves_with_room(self, gang: Gang) -> list[int]:
        room, asked = self._scheduler, gang.vfs[0]
        return [leaf for leaf in room.leaves if room.slots(leaf, asked) >= len(gang.vfs)]

    def _anywhere(self, gang: Gang) -> Sequence[Pin]:
        has_room = self._scheduler.slots(None, gang.vfs[0]) >= len(gang.vfs)
        return [_UNPINNED] * len(gang.vfs) if has_room else ()


class Spread(_Rival):
    """Kubernetes' default: each pod goes to the emptiest node, wherever that is."""

    def _pins(self, gang: Gang, now: float) -> Sequence[Pin]:
        del now
        return self._anywhere(gang)


class FirstPodDecides(_Rival):
    """Required pod affinity: the first pod goes to the emptiest node, and the others must follow it into its leaf.

    If they cannot, all try again, and the first pod may get another node: the real one keeps its node.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._again: float | None = None

    def decide(self, waiting: Sequence[Gang], now: float) -> Iterator[Decision]:
        """Yield the gangs whose first pod came to a leaf with room."""
        yield from super().decide(waiting, now)
        if self._again is None or self._again <= now:
            self._again = now + _BACKOFF_SECONDS

    def again(self) -> float | None:
        """Return when pods are tried again."""
        return self._again

    def _pins(self, gang: Gang, now: float) -> Sequence[Pin]:
        del now
        node = self._scheduler.choose(_UNPINNED, gang.vfs[0])
        if node is None:
            return ()
        leaf = self._scheduler.leaf_of_node[node]
        return [Pin(leaf)] * len(gang.vfs) if leaf in self._leaves_with_room(gang) else ()


class FirstFit(_Rival):
    """The first leaf that has room; otherwise anywhere."""

    def _pins(self, gang: Gang, now: float) -> Sequence[Pin]:
        del now
        leaves = self._leaves_with_room(gang)
        return [Pin(leaves[0])] * len(gang.vfs) if leaves else self._anywhere(gang)


class BestFit(_Rival):
    """A model of the planner in thirty lines: the leaf with the least room left over; after a while, the fewest leaves.

    Consecutive ranks share a leaf.
    """

    def __init__(self, scheduler: Scheduler, relax_after: float | None) -> None:
        super().__init__(scheduler)
        self._relax_after = relax_after
        self._again: float | None = None

    def decide(self, waiting: Sequence[Gang], now: float) -> Iterator[Decision]:
        """Yield the gangs that have room."""
        yield from super().decide(waiting, now)
        relaxes = [] if self._relax_after is None else [gang.arrives + self._relax_after for gang in waiting]
        self._again = min((moment for moment in relaxes if moment > now), default=None)

    def again(self) -> float | None:
        """Return when the next gang relaxes."""
        return self._again

    def _pins(self, gang: Gang, now: float) -> Sequence[Pin]:
        asked = gang.vfs[0]
        if leaves := self._leaves_with_room(gang):
            return [Pin(min(leaves, key=lambda leaf: self._scheduler.slots(leaf, asked)))] * len(gang.vfs)
        relaxed = self._relax_after is not None and now >= gang.arrives + self._relax_after
        return self._fewest(len(gang.vfs), asked) if relaxed else ()

    def _fewest(self, pods: int, asked: int) -> Sequence[Pin]:
        """Take the leaves with most room until one holds the rest, and of those that do, the fullest."""
        room = {leaf: self._scheduler.slots(leaf, asked) for leaf in self._scheduler.leaves}
        if sum(room.values()) < pods:
            return ()
        pins: list[Pin] = []
        while left := pods - len(pins):
            enough = [leaf for leaf, slots in room.items() if slots >= left]
            leaf = min(enough, key=lambda leaf: room[leaf]) if enough else max(room, key=lambda leaf: room[leaf])
            pins += [Pin(leaf)] * min(room.pop(leaf), left)
        return pins
