"""Gangs and their members, and what the planner answers for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from railnet.gangs.placement.pod_shape import Shape, Unseen
from railnet.jobs.gang.request import Constraint

GangKey = tuple[str, str]  # namespace and name
Domain = tuple[tuple[str, str], ...]  # labels and their values, sorted by label: `domain()` makes one

_ANYWHERE = Constraint()


def domain(labels: Mapping[str, str]) -> Domain:
    """Return the domain of the nodes that have these labels: what the annotation of a placed pod says, for one."""
    return tuple(sorted(labels.items()))


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a gang that has not ended, or one that is still to come.

    Attributes:
        name: the pod's name; empty for one that does not exist yet.
        shape: what it asks of its node.
        rank: its rank in the role; members are ordered by role, rank and name.
        node: the node that it is bound to; empty before.
        pinned: the domain that its node selector names because the gang was placed; None while it has its gate, and before it exists. A gang
            without topology has `()` here when it is placed.
        seat: the node that it was given when it was placed; it keeps that node until it is bound. Empty where that is not known, and before.
    """

    name: str
    shape: Shape
    role: str = ""
    rank: int = 0
    node: str = ""
    pinned: Domain | None = None
    seat: str = ""


def ring_order(member: Member) -> tuple[str, int, int, str]:
    """Return a key to sort members by: role, rank, name; of names without a rank, `w-2` is before `w-10`."""
    return (member.role, member.rank, len(member.name), member.name)


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang, as its pods are now.

    Attributes:
        members: those that exist, and those that are still to come if it is known what they will be. They are put in the order of their ranks.
        needed: how many start together. If there are fewer members, the planner adds more of the biggest shape: room is reserved for them.
            If there are more, they are placed with the others where there is room, and else later.
        constraint: where.
        since: when it was made; gangs of the same priority and namespace are served by age. On the same scale as `now` of `scheduling_pass.schedule`.
        queued: when an older gang of its namespace last got its place, on the same scale: then it went behind the gangs of others.
        excluded: domains that it must not have: those that cool down.
        preempts: False with the preemption policy `Never`.
        leaving: whether its pods are being deleted.
        foreign_gates: whether scheduling gates of others hold pods of it.
        started: whether a member has its place: then the others follow it.
    """

    namespace: str
    name: str
    members: tuple[Member, ...]
    needed: int = 0
    constraint: Constraint = _ANYWHERE
    priority: int = 0
    since: float = 0.0
    excluded: frozenset[Domain] = frozenset()
    preempts: bool = True
    leaving: bool = False
    foreign_gates: bool = False
    queued: float = field(default=0.0, compare=False)
    shapes: frozenset[Shape] = field(init=False, repr=False, compare=False)
    started: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        members = tuple(sorted(self.members, key=ring_order))
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "shapes", frozenset({member.shape for member in members}))
        started = any(member.node or member.pinned is not None for member in members)
        object.__setattr__(self, "started", started)

    @property
    def unseen(self) -> tuple[Unseen, ...]:
        """The requirements of its pods that only the scheduler can check."""
        gates = (Unseen.GATES,) if self.foreign_gates else ()
        return tuple(sorted({*gates, *(requirement for shape in self.shapes for requirement in shape.unseen)}))

    @property
    def key(self) -> GangKey:
        """Namespace and name."""
        return (self.namespace, self.name)

    @property
    def is_incomplete(self) -> bool:
        """True if members that must start together are still to come."""
        return sum(1 for member in self.members if member.name) < self.needed


class Seat(NamedTuple):
    """The place of one member.

    Attributes:
        member: the pod's name; empty for one that does not exist yet.
        shape: what it asks of its node.
        domain: the labels that its node selector gets, all of them; empty for a gang without topology.
        node: where the planner keeps room for it. The scheduler may choose another node of the domain.
    """

    member: str
    role: str
    rank: int
    shape: Shape
    domain: Domain
    node: str


class SeatLoss(StrEnum):
    """The reason why a node cannot be a member's seat any more."""

    GONE = "is gone"
    CLOSED = "does not take it any more (not ready, cordoned, or other taints or labels than before)"


class LostSeat(NamedTuple):
    """A seat that a placed member lost before it was bound.

    Attributes:
        member: the pod's name.
        node: the node that it was given.
        now: the node on which room is kept for it instead; empty if there is none.
    """

    gang: GangKey
    member: str
    node: str
    reason: SeatLoss
    now: str


@dataclass(frozen=True, slots=True)
class Placement:
    """A gang that has a place.

    Attributes:
        domain: the smallest domain that all its members are in; empty: the whole cluster.
        seats: those of all members that are not bound, in the order of their ranks; also of those that do not exist yet.
        leaves: how many of the smallest domains it is spread over.
        ignored: the labels that it prefers and no node has.
    """

    gang: GangKey
    domain: Domain
    seats: tuple[Seat, ...]
    leaves: int = 1
    ignored: tuple[str, ...] = ()


class Reason(StrEnum):
    """The reason why a gang has no place."""

    NO_ROOM = "no room"
    HELD = "its room is kept for another gang"
    BINDING = "pods of another shape are being bound where it has room"
    UNKNOWN_KEY = "no node has this label"
    NO_NODE = "no node is as its selectors and tolerations require"
    TOO_LARGE = "larger than every domain, even an empty one"
    SPLIT = "its members are in different domains already"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A gang that has no place, and what an event says of it.

    Attributes:
        seen: how many members exist.
        needed: how many start together.
        tried: how many domains were tried.
        best: the domain with the most room; empty: the whole cluster.
        room: how many of the members that need a place it has room for.
        lacks: what is missing there, by resource (`host port 8080` for a port), largest part first; empty if it cannot be said of one resource.
        keys: with `UNKNOWN_KEY`, the labels.
        generation: the cluster's, when this was found: see `Cluster.grew`.
        held_for: with `HELD`, the gang that it is kept for, the first one if there are several.
        ignored: the labels that it prefers and no node has: they count for nothing.
        unseen: why no other gang is evicted for it: the requirements of its pods that only the scheduler can check. Empty if that is not the reason.
    """

    gang: GangKey
    reason: Reason
    seen: int
    needed: int
    tried: int = 0
    best: Domain = ()
    room: int = 0
    lacks: tuple[tuple[str, int], ...] = ()
    keys: tuple[str, ...] = ()
    generation: int = 0
    held_for: GangKey | None = None
    ignored: tuple[str, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    @property
    def permanent(self) -> bool:
        """True if waiting does not help: a node must be added or changed, or the gang."""
        return self.reason not in (Reason.NO_ROOM, Reason.HELD, Reason.BINDING)
