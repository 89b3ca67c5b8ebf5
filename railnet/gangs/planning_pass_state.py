"""One pass over all gangs: what it is given, and what it gathers step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from railnet.gangs.leader_memory import Eviction
from railnet.gangs.members import Members, MembersToCome
from railnet.gangs.placement.gang import Gang, GangKey, Placement, Shortfall
from railnet.gangs.placement.preemption import Preemption
from railnet.gangs.planning_result import About, Asked, GangFailure, Root, Said, Write
from railnet.gangs.pod import GangPod
from railnet.gangs.pod_group import PodGroup
from railnet.jobs.gang.request import GangRequest
from railnet.objects.pod_name import PodName


class Find(Protocol):
    """Finds what is known of an owner, if it was read after a moment on the leader's own clock; None if it is asked for now."""

    def __call__(self, asked: Asked, read_after: float = ..., /) -> Root | None:
        """Return it."""


@dataclass(frozen=True, slots=True)
class GangSize:
    """How many members a gang has, and will have.

    Attributes:
        root: what makes its pods; None if it is not known.
        known: whether all is known that can be.
        made: how many pods of the gang the root makes; 0 if that is not known.
        coming: the members that it will still make.
        least: how many start together; `absent` of them do not exist.
        is_read: whether the root has been read, if it has to be.
    """

    request: GangRequest
    root: Root | None
    known: bool
    made: int
    coming: MembersToCome
    least: int
    absent: int
    is_read: bool = True

    @property
    def missing(self) -> int:
        """How many members are known that do not exist."""
        return max(self.absent, self.coming.count)


@dataclass(slots=True)
class PlanningPass:
    """One pass.

    Attributes:
        now: on the leader's own clock; `wall` in seconds since 1970.
        find: finds what is known of owners.
        writes: the pods that are to be written.
        groups: the PodGroups that are to be created; None: to be deleted.
        said: events.
        asked_again: owners that are to be read once more.
        skipped: gangs that stay as they are in this pass: what happened to them is not in the table of their life, or a step for them has failed.
        errors: what is to be logged of those to which something impossible happened.
        failures: the steps that have failed.
        gangs: what the planner is given.
        seated: gangs that get no place in this pass, and whose placed pods keep their seats.
        looked: the sorted pods of the gangs that were looked at.
        is_room_unknown: whether room is kept for members of a gang of which it is not known yet how many they are: no gang begins before.
        evictions, sizes, faults: what was found out of gangs that were looked at.
        placements, shortfalls, preemptions: the planner's answers.
        spared: the gangs that no other may take the place of, because an eviction would cost their jobs.
        undecided: the gangs of which that is not known yet.
        due: when to decide again.
    """

    now: float
    wall: float
    find: Find
    writes: dict[PodName, Write] = field(default_factory=dict)
    groups: dict[GangKey, PodGroup | None] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    asked_again: list[Asked] = field(default_factory=list)
    skipped: set[GangKey] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    failures: list[GangFailure] = field(default_factory=list)
    gangs: dict[GangKey, Gang] = field(default_factory=dict)
    seated: list[Gang] = field(default_factory=list)
    looked: dict[GangKey, Members] = field(default_factory=dict)
    is_room_unknown: bool = False
    evictions: dict[GangKey, Eviction] = field(default_factory=dict)
    sizes: dict[GangKey, GangSize] = field(default_factory=dict)
    faults: dict[GangKey, str] = field(default_factory=dict)
    placements: dict[GangKey, Placement] = field(default_factory=dict)
    shortfalls: dict[GangKey, Shortfall] = field(default_factory=dict)
    preemptions: dict[GangKey, Preemption] = field(default_factory=dict)
    spared: list[Gang] = field(default_factory=list)
    undecided: list[Gang] = field(default_factory=list)
    due: float | None = None

    def at(self, moment: float) -> None:
        """Have it decided again at a moment, or earlier."""
        self.due = moment if self.due is None else min(self.due, moment)

    def warn(self, living: Sequence[GangPod], reason: str, text: str) -> None:
        """Say what is wrong with a gang, and what to do."""
        self.said.append(Said(about(living), reason, text, "Warning"))


def about(living: Sequence[GangPod]) -> About:
    """Return the object that an event about a gang is about: the owner of its oldest pod."""
    pod = min(living, key=lambda pod: (pod.owner is None, pod.created, pod.name))
    return About(pod.involved, None if pod.owner is None else Asked(pod.name.namespace, pod.owner))
