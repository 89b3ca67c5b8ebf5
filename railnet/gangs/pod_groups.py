"""Decides which PodGroups are created: those of gangs whose pods name one and have all been told their place. No I/O, no clock.

The PodGroup of a gang without pods is deleted, so that pods that come again may have another level.

Nothing is remembered that the next leader needs: it asks for a PodGroup once more, and the API server answers that it exists.
"""

from collections.abc import Sequence
from typing import NamedTuple

from railnet.backoff import Backoff
from railnet.gangs.evictions import required_domains
from railnet.gangs.members import Members
from railnet.gangs.pending_writes import PendingWrites
from railnet.gangs.placement.gang import GangKey
from railnet.gangs.planning_pass_state import PlanningPass, about
from railnet.gangs.planning_result import Asked, Recall, Said
from railnet.gangs.pod import GangPod
from railnet.gangs.pod_group import PodGroup, level
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import OwnerReference

_ASK_SECONDS = 60.0  # until a PodGroup is asked for again while its pods have no nodes: what the scheduler says of it, and whether it is there
# Each try writes to all pods of a gang, so the pauses grow, from one minute to five: without the random part, half of these.
_BACKOFF = Backoff(first_seconds=120.0, longest_seconds=600.0)
_MOST_OWNERS = 50


class GroupOutcome(NamedTuple):
    """What came of a PodGroup.

    Attributes:
        refusal: why it does not exist, or is not Railnet's, and what to do; empty if it exists.
        waits: what the scheduler says of it.
    """

    gang: GangKey
    refusal: str = ""
    waits: str = ""


class _GroupRefusals(NamedTuple):
    """How often a PodGroup was refused, and until when it is not asked for again."""

    times: int
    until: float


_NEVER = _GroupRefusals(0, float("-inf"))


class PodGroups:
    """Remembers which PodGroups were asked for, and which were refused, and when."""

    def __init__(self, pending: PendingWrites) -> None:
        """Put writes of pods into `pending`."""
        self._pending = pending
        self._asked: dict[GangKey, float] = {}
        self._refused: dict[GangKey, _GroupRefusals] = {}

    def look(self, key: GangKey, pods: Members, current: PlanningPass, *, off: bool) -> None:
        """Have the PodGroup of a gang created, if its pods wait for it alone; `off` says that gangs are switched off in its namespace."""
        if not pods.living:
            self._forget(key, current)
        waiting = [pod for pod in (*pods.placed, *pods.waiting) if pod.group is not None]
        if not waiting or not self._is_due(key, pods, current):
            return
        is_unfit = _is_lost(key, pods, current) or (not pods.bound and len(required_domains(pods)) > 1)
        if is_unfit and not off and key not in self._asked:
            self._recall(pods, current)
            return
        wanted = _each_alone(key, waiting, current) if off else _whole(key, pods, current)
        if wanted is None:
            return
        self._asked[key] = current.now
        current.at(current.now + _ASK_SECONDS)
        current.groups[key] = wanted

    def refused(self, key: GangKey, now: float) -> None:
        """Take in that the PodGroup of a gang does not exist, or is not Railnet's: its pods are to keep no room until it is asked for again."""
        self._asked.pop(key, None)
        times = self._refused.get(key, _NEVER).times + 1
        self._refused[key] = _GroupRefusals(times, now + _BACKOFF.pause(times, jitter=0.0))

    def rests_until(self, key: GangKey) -> float:
        """Return until when a gang gets no place, because its PodGroup was refused."""
        return self._refused.get(key, _NEVER).until

    def _forget(self, key: GangKey, current: PlanningPass) -> None:
        self._refused.pop(key, None)
        if self._asked.pop(key, None) is not None:
            current.groups[key] = None

    def _recall(self, pods: Members, current: PlanningPass) -> None:
        """Take back what pods were told: their place is lost, or two leaders have told them places that do not go together.

        As long as there is no PodGroup, another place may be chosen.
        """
        for pod in pods.placed if not pods.bound else ():
            if pod.group is not None and pod.placed is not None:
                self._pending.put(pod, Recall(), current)

    def _is_due(self, key: GangKey, pods: Members, current: PlanningPass) -> bool:
        """Return whether a PodGroup may be asked for. If it was refused a moment ago, its pods have no place meanwhile."""
        rests = self.rests_until(key)
        again = max(rests, self._asked.get(key, -_ASK_SECONDS) + _ASK_SECONDS)
        if current.now >= again:
            return True
        if current.now < rests:
            self._recall(pods, current)
        current.at(again)
        return False


def outcome_event(outcome: GroupOutcome, living: Sequence[GangPod]) -> Said | None:
    """Return the event about a PodGroup; None if there is nothing to say."""
    if not living or not (outcome.refusal or outcome.waits):
        return None
    if outcome.refusal:
        return Said(about(living), "GangRefused", f"{outcome.refusal:.1000}", "Warning")
    text = f"the scheduler finds no room for the PodGroup now, although there was room when it was created; it waits: {outcome.waits:.600}"
    return Said(about(living), "GangWaiting", text, "Warning")


def _is_lost(key: GangKey, pods: Members, current: PlanningPass) -> bool:
    """Return whether members that start together have no place any more; others may wait for theirs."""
    size = current.sizes.get(key)
    all_begun = size is not None and bool(pods.waiting) and len(pods.begun) >= size.least
    return key in current.shortfalls and not all_begun


def _each_alone(key: GangKey, waiting: Sequence[GangPod], current: PlanningPass) -> PodGroup | None:
    """Return a PodGroup whose pods start each by itself."""
    classes = {pod.priority_class for pod in waiting}
    owners = _owners(key, waiting, current)
    return None if owners is None else PodGroup(key, "", 0, min(classes), owners)


def _whole(key: GangKey, pods: Members, current: PlanningPass) -> PodGroup | None:
    """Return the PodGroup of a gang all of whose pods that start together know their place."""
    size = current.sizes.get(key)
    told = [pod for pod in pods.placed if pod.group is not None]
    # The watch reports what each pod was told. If one lost its node before, all of this is decided anew.
    if size is None or not size.known or not told or any(pod.placed is None for pod in told):
        return None
    if pods.waiting and len(pods.begun) < size.least:
        return None
    members = [pod for pod in pods.begun if pod.group is not None]
    classes = sorted({pod.priority_class for pod in members})
    if len(classes) > 1:
        text = f"its pods have several PriorityClasses, and those of a PodGroup have one: {', '.join(map(repr, classes))}; give all pods the same"
        current.warn(pods.living, "GangRefused", f"{text:.1000}")
        return None
    owners = _owners(key, members, current)
    if owners is None:
        return None
    others = len(pods.begun) - len(members)
    least = max(1, min(size.least - others, len(members)))
    constraint = size.request.constraint
    # Where others of the gang run without the PodGroup, its label could have another value for these: the nominations keep them together.
    required, preferred = ((), ()) if constraint is None or others else (constraint.required, constraint.preferred)
    chosen = required[0] if required else level([pod.placed for pod in told if pod.placed is not None], preferred)
    return PodGroup(key, chosen, least, classes[0], owners)


def _owners(
    key: GangKey, pods: Sequence[GangPod], current: PlanningPass
) -> tuple[InvolvedObject | OwnerReference, ...] | None:
    """Return the objects that pods began with, or the pods themselves where nothing makes them; None if one is not known yet."""
    roots = [
        current.find(Asked(key[0], owner)) for owner in dict.fromkeys(pod.owner for pod in pods) if owner is not None
    ]
    if any(root is None for root in roots):
        return None
    known: list[InvolvedObject | OwnerReference] = [root.owner for root in roots if root is not None]
    alone = [pod.involved for pod in pods if pod.owner is None]
    return tuple(dict.fromkeys([*known, *alone]))[:_MOST_OWNERS]
