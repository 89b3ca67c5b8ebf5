"""The writes that are under way, or whose end no watch has reported yet; and those that were refused a moment ago."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from railnet.backoff import Backoff
from railnet.gangs import event_messages
from railnet.gangs.gate_removal_patch import Gated
from railnet.gangs.members import Members, members
from railnet.gangs.placement_annotation import Placed
from railnet.gangs.planning_pass_state import PlanningPass, about
from railnet.gangs.planning_result import Admit, Annotate, Evict, Recall, Said, Withdraw, Write, WriteOutcome
from railnet.gangs.pod import GangPod
from railnet.gangs.pod_group import Grouped
from railnet.objects.pod_name import PodName

_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=30.0)
REFUSALS_SAID = 5  # a stale patch is refused once or twice; a policy refuses it always


@dataclass(slots=True)
class _Refused:
    """Writes of one kind that were refused: how often, and until when none is sent again."""

    times: int = 0
    until: float = 0.0


class PendingWrites:
    """The writes that the API server was asked for, and that are not seen in the pods yet.

    Attributes:
        assigned: where pods are placed whose gates are being removed.
    """

    def __init__(self) -> None:
        self.assigned: dict[PodName, Placed] = {}
        self._evicted: set[PodName] = set()
        self._annotated: set[PodName] = set()
        self._withdrawn: set[PodName] = set()
        self._recalled: set[PodName] = set()
        self._refused: dict[PodName, dict[type[Write], _Refused]] = {}

    def members(self, gang_pods: Iterable[GangPod]) -> Members:
        """Sort the pods of a gang; those whose gates are being removed have their place."""
        return members(gang_pods, self.assigned.keys())

    def pod_changed(self, before: GangPod, now: GangPod | None) -> None:
        """Take in that a pod is as it is now; None if it is gone."""
        name = before.name
        if now is None or now.placed != before.placed:
            self._annotated.discard(name)
            self._recalled.discard(name)
        if now is None or now.nominated != before.nominated:
            self._withdrawn.discard(name)
        if now is None or now.held is None:
            self.assigned.pop(name, None)
        if now is None or _gate(now) != _gate(before):
            self._refused.pop(name, None)
        elif (
            now.held != before.held
        ):  # a patch that was stale may be sent again at once, but not with each change for ever
            for refused in self._refused.get(name, {}).values():
                refused.until = 0.0 if refused.times < REFUSALS_SAID else refused.until
        if now is None or now.leaving:
            self._evicted.discard(name)

    def refused(self, outcome: WriteOutcome, now: float, jitter: float) -> int:
        """Take in that a write was refused; return how often. It is decided anew, from the pod as it is reported by then.

        One that is forbidden is sent again until it is decided anew once: a policy may forbid it for ever. `jitter` is a random number in [0, 1), of
        the pause until then.
        """
        refused = self._refused.setdefault(outcome.pod, {}).setdefault(type(outcome.write), _Refused())
        if outcome.waits and not outcome.forbidden:
            return refused.times
        refused.times += 1
        if not outcome.waits or refused.times == REFUSALS_SAID:
            self._forget((outcome.pod,))
            refused.until = now + _BACKOFF.pause(refused.times, jitter)
        return refused.times

    def refusals(self, pod: PodName, kind: type[Write]) -> int:
        """Return how often writes of one kind were refused for a pod."""
        refused = self._refused.get(pod, {}).get(kind)
        return 0 if refused is None else refused.times

    def put(self, pod: GangPod, write: Write, current: PlanningPass) -> bool:
        """Have a pod written, unless the same is under way, or was refused a moment ago. Return whether it is."""
        refused = self._refused.get(pod.name, {}).get(type(write))
        if refused is not None and refused.until > current.now:
            current.at(refused.until)
            return False
        if pod.name in self._under_way(write):
            return False
        if isinstance(write, Admit):
            self.assigned[pod.name] = write.placed or Placed((), 1)
        else:
            self._under_way_without_place(write).add(pod.name)
        current.writes[pod.name] = write
        return True

    def undo(self, pods: Iterable[PodName], current: PlanningPass) -> None:
        """Take writes of a pass back, because it has failed for these pods."""
        undone = [pod for pod in pods if pod in current.writes]
        self._forget(undone)
        for pod in undone:
            del current.writes[pod]

    def _under_way(self, write: Write) -> Collection[PodName]:
        return self.assigned if isinstance(write, Admit) else self._under_way_without_place(write)

    def _under_way_without_place(self, write: Withdraw | Recall | Annotate | Evict) -> set[PodName]:
        match write:
            case Withdraw():
                return self._withdrawn
            case Recall():
                return self._recalled
            case Annotate():
                return self._annotated
            case Evict():
                return self._evicted

    def _forget(self, pods: Iterable[PodName]) -> None:
        for pod in pods:
            self.assigned.pop(pod, None)
            self._evicted.discard(pod)
            self._annotated.discard(pod)
            self._withdrawn.discard(pod)
            self._recalled.discard(pod)


def _gate(pod: GangPod) -> Gated | Grouped | None:
    """Return what the patch that gives a pod its place depends on, but for the state of the pod that changes of itself."""
    return None if pod.held is None else replace(pod.held, version="", nominated="")


def refusal_event(outcome: WriteOutcome, times: int, pod: GangPod) -> Said | None:
    """Return the event about a write of a pod that was refused so many times; None if it is too early for it."""
    if isinstance(outcome.write, Evict):
        text = event_messages.eviction_refused(outcome.pod.name, outcome.refusal)
        return Said(about([pod]), "GangEvicted", text, "Warning")
    if times < REFUSALS_SAID and not (outcome.waits and outcome.forbidden):
        return None
    says = event_messages.patch_refused if isinstance(outcome.write, Admit) else event_messages.write_refused
    text = says(outcome.pod.name, outcome.refusal)
    return Said(about([pod]), "GangRefused", text, "Warning")
