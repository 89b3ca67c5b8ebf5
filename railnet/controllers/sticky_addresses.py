"""Addresses that stay with a rank: assigns a number to each rank, writes the table of numbers, then each pod's annotation.

No pod gets an address that is not in the table. A leader that still works after it lost the Lease cannot assign a number twice: its write of
the table is refused, because the table has changed. A number is released when its job has no pods and the job's root is gone. That is looked
for when the last pod goes, when a leader begins, and when numbers run out; nothing is asked at other times. When numbers are still short then,
ranks without a pod give theirs back (`railnet.controllers.sticky_give_back`).
"""

import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from railnet.apiserver.client import Absent, ApiServer, Conflict
from railnet.apiserver.request import ApiObject, create, get, merge_patch, update
from railnet.controllers import sticky_table
from railnet.controllers.events import JobEvents
from railnet.controllers.job_pods import JobPods
from railnet.controllers.owners import Life, Owners
from railnet.controllers.reverted_writes import MOST_WRITES, WINDOW_SECONDS, RepeatedWrites
from railnet.controllers.sticky_give_back import AbsentRank, give_back
from railnet.controllers.sticky_table import Holder, Numbers, Table
from railnet.controllers.training_pod import TrainingPod
from railnet.controllers.work_queue import WorkQueue
from railnet.errors import Misconfigured, NotPermitted
from railnet.jobs.sticky_numbers import Assignment, StickyPod, addresses, assign, number_of, numbers
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import LONGEST_TEXT, OwnerReference
from railnet.objects.pod_name import PodName
from railnet.vf.permitted_networks import (
    ADDRESS_ANNOTATION,
    STICKY_ANNOTATION,
    Network,
    Networks,
    StickyIpam,
    is_sticky,
)

_log = logging.getLogger(__name__)
_TABLE = "the table"  # the only key: one look assigns for all jobs, so a thousand new pods cost one write of the table
_GATHER_SECONDS = 0.1  # after a pod's change, for those of the pods that come with it
_ROOT_LEAVES_SECONDS = 2.0  # until the next look at a root that waits for what it owns to go
_LOOK_AGAIN_SECONDS = (
    60.0  # at a table that cannot be read, and at roots while numbers are short: no watch reports a change
)
_MOST_ROOTS_AT_ONCE = 200  # that are asked for in one look: the pods of all other jobs wait for it
_BOUND_PART = 4  # of a range, and of the table: what ranks without a pod of one namespace may hold for long while others are short


class AskingPod(NamedTuple):
    """A pod that asks for the address of its rank, and the network that it gets."""

    pod: TrainingPod
    network: Network
    ipam: StickyIpam
    member: StickyPod[Holder]
    vfs: int


class StickyAddresses:
    """The controller.

    Attributes:
        queue: has one key while the table must be looked at; one worker at a time may take it.
        patches: the pods that must be annotated; any number of workers.
        trouble: why no address is assigned; empty if there is no reason.
    """

    def __init__(  # noqa: PLR0913 - composed once
        self,
        *,
        api: ApiServer,
        namespace: str,
        networks: Networks,
        resources: frozenset[str],
        pods: JobPods,
        owners: Owners,
        events: JobEvents,
        clock: Callable[[], float] = time.monotonic,
        gangs: bool = False,
    ) -> None:
        """Keep the table in `namespace`; `networks` and `resources` are those of the node configuration; `clock` returns seconds.

        `gangs` says that another controller places gangs: of a gated pod, the patch that removes the gate has the annotation.
        """
        self._gangs = gangs
        self._clock, self._next_look = clock, 0.0  # when all roots may be looked at again because numbers are short
        self._api, self._about, self._namespace = api, sticky_table.address(namespace), namespace
        self._networks, self._resources = networks, resources
        self._pods, self._owners, self._events = pods, owners, events
        self._table: Table | None = None  # None: it must be read
        # When each rank with a number was first seen without a pod, by network and job.
        self._absent: dict[tuple[str, Holder], dict[str, float]] = {}
        self._there: set[Holder] = set()  # jobs without pods whose root was there when it was looked at
        self._lock = threading.Lock()
        self._due: dict[PodName, str] = {}  # what must be written
        self._written: dict[PodName, str] = {}  # what was written, and is not reported yet
        self._repeated: RepeatedWrites[PodName] = RepeatedWrites(clock)
        self.trouble = ""
        self.queue: WorkQueue[str] = WorkQueue()
        self.patches: WorkQueue[PodName] = WorkQueue()
        self.queue.add(_TABLE)
        self._gather = _GATHER_SECONDS
        pods.watch(lambda _: self.queue.add(_TABLE, self._gather))

    def reconcile(self, key: str) -> float | None:  # noqa: ARG002 - there is one key
        """Assign and release numbers, and have pods annotated; return the seconds after which to look again, or None.

        Raises:
            RequestFailed: a request was not done. Nothing that is not in the table has been given to a pod.
        """
        began = self._clock()
        again = self._look()
        self._gather = max(_GATHER_SECONDS, self._clock() - began)  # half of the time at most is spent on looks
        return again

    def _look(self) -> float | None:
        try:
            table = self._table or self._read()
        except sticky_table.UnreadableTable as error:
            if str(error) != self.trouble:
                _log.error("%s", error)
            self.trouble = str(error)
            return _LOOK_AGAIN_SECONDS
        self.trouble = ""
        pods = [pod for job in self._pods.jobs() for pod in self._pods.of(job) if STICKY_ANNOTATION in pod.annotations]
        asking = list(self._asking(pods))
        again, kept = self._released(table, pods)
        self._note_absent(kept, asking)
        assigned = self._assigned(asking, kept)
        if any(assignment.short for assignment in assigned.values()) and self._clock() >= self._next_look:
            self._next_look = self._clock() + _LOOK_AGAIN_SECONDS
            self._there.clear()  # the root of a job without pods may have been deleted since it was looked at
            again, kept = self._released(table, pods)
            assigned = self._assigned(asking, kept)
        kept, assigned = self._with_room(asking, kept, assigned)
        if not self._write(Table(_numbers(kept, assigned), table.found), table):
            self._full(asking, table)
            return _LOOK_AGAIN_SECONDS
        self._give(asking, assigned)
        self._say(asking, assigned)
        if again is None and any(assignment.short for assignment in assigned.values()):
            return _LOOK_AGAIN_SECONDS
        return again

    def _with_room(
        self,
        asking: Sequence[AskingPod],
        kept: dict[str, Numbers],
        assigned: dict[str, Assignment[Holder]],
    ) -> tuple[dict[str, Numbers], dict[str, Assignment[Holder]]]:
        """Have ranks without a pod give numbers back where numbers are short, or where the table has no room for them."""
        excess = sticky_table.size(_numbers(kept, assigned)) - sticky_table.MOST_BYTES
        if excess <= 0 and not any(assignment.short for assignment in assigned.values()):
            return kept, assigned
        absent = list(self._absent_ranks(kept))
        given: list[AbsentRank] = []
        now = self._clock()
        for name, assignment in assigned.items():
            of_network = [rank for rank in absent if rank.network == name]
            short = {member.holder.namespace for member in assignment.short}
            given += give_back(of_network, len(assignment.short), short, self._size(name) // _BOUND_PART, now)
        if excess > 0:
            weighed = [
                rank._replace(weight=sticky_table.size_of_rank(rank.holder, kept[rank.network][rank.holder]))
                for rank in absent
            ]
            new = {request.pod.job.namespace for request in asking if not _has_number(request, kept)}
            given += give_back(weighed, excess, new, sticky_table.MOST_BYTES // _BOUND_PART, now)
        if not given:
            return kept, assigned
        _log.info("%d ranks without a pod gave their addresses back, because addresses are short", len(given))
        kept = _without(kept, given)
        return kept, self._assigned(asking, kept)

    def _size(self, network: str) -> int:
        ipam = self._networks.by_name[network].ipam
        return len(numbers(ipam)) if isinstance(ipam, StickyIpam) else 0

    def _absent_ranks(self, kept: Mapping[str, Numbers]) -> Iterator[AbsentRank]:
        """Yield the ranks without a pod, but for those whose address a pod has all the same, such as one that is sticky no longer."""
        used = set(self._used())
        for (network, holder), ranks in self._absent.items():
            numbers_of_job = kept.get(network, {}).get(holder, {})
            for rank, since in ranks.items():
                if rank in numbers_of_job and (network, numbers_of_job[rank]) not in used:
                    yield AbsentRank(network, holder, rank, since)

    def _used(self) -> Iterator[tuple[str, int]]:
        """Yield the number of each pod's first address. A pod may name many, and keeps one."""
        for pod in (pod for job in self._pods.jobs() for pod in self._pods.of(job) if not pod.ended):
            for network in self._networks:
                if isinstance(network.ipam, StickyIpam):
                    for text in (*pod.addresses[:1], pod.annotations.get(ADDRESS_ANNOTATION, "")):
                        number = number_of(network.ipam, text) if text else None
                        if number is not None:
                            yield network.name, number

    def _note_absent(self, kept: Mapping[str, Numbers], asking: Iterable[AskingPod]) -> None:
        now = self._clock()
        there: defaultdict[tuple[str, Holder], set[str]] = defaultdict(set)
        for request in asking:
            there[request.network.name, request.member.holder].add(request.member.rank)
        before, self._absent = self._absent, {}
        for network, jobs in kept.items():
            for holder, ranks in jobs.items():
                since = before.get((network, holder), {})
                absent = {rank: since.get(rank, now) for rank in ranks if rank not in there[network, holder]}
                if absent:
                    self._absent[network, holder] = absent

    def annotate(self, pod: PodName) -> None:
        """Write a pod's annotation, unless it is another pod of the same name.

        Raises:
            RequestFailed: the request was not done.
        """
        with self._lock:
            text = self._due.get(pod)
        if text is None:
            return
        # Through pods/status the specification cannot be changed. A UID in a merge patch is a precondition (kubernetes/kubernetes#86320).
        about = ApiObject("v1", "pods", pod.name, pod.namespace, "status")
        patch = {"metadata": {"uid": pod.uid, "annotations": {ADDRESS_ANNOTATION: text}}}
        if not self._repeated.permit(pod, pod.name, text):
            about_pod = InvolvedObject("v1", "Pod", pod.namespace, pod.name, pod.uid)
            self._events.warning(about_pod, "StickyAddressLeftAlone", _left_alone(text))
            return
        with suppress(Absent, Conflict):  # the pod is gone
            self._api.send(merge_patch(about, patch))
            self._repeated.wrote(pod, pod.name, text)
            with self._lock:
                self._written[pod] = text
                if self._due.get(pod) == text:
                    del self._due[pod]

    @property
    def left_out(self) -> int:
        """How many annotations were not written, because the same one had been written again and again."""
        return self._repeated.left_out

    def due(self, pod: PodName) -> str | None:
        """Return the annotation that a pod must get; None if it has it, needs none, or its number is not assigned yet."""
        with self._lock:
            return self._due.get(pod)

    def _read(self) -> Table:
        try:
            self._table = sticky_table.read(self._api.send(get(self._about)))
        except Absent:
            self._table = Table({})
        return self._table

    def _write(self, after: Table, before: Table) -> bool:
        """Write the table if it differs; return False if it would be too large."""
        if sticky_table.texts(after.networks) == sticky_table.texts(before.networks):
            return True
        if sticky_table.size(after.networks) > sticky_table.MOST_BYTES:
            return False
        body = sticky_table.body(after, self._namespace)
        send = create if after.found is None else update
        self._table = None  # if there is no answer, the write may have been done
        self._table = Table(after.networks, self._api.send(send(self._about, body)))
        return True

    def _asking(self, pods: Iterable[TrainingPod]) -> Iterator[AskingPod]:
        for pod in pods:
            vfs = sum(count for resource, count in pod.devices.items() if resource in self._resources)
            if pod.ended or pod.host_network or not vfs:
                continue
            try:
                network = self._network(pod, vfs)
            except (Misconfigured, NotPermitted) as error:
                self._events.warning(pod.involved, "StickyAddressRefused", str(error))
                continue
            if network is None or not isinstance(network.ipam, StickyIpam):
                continue
            number = number_of(network.ipam, pod.annotations.get(ADDRESS_ANNOTATION, ""))
            rank = f"{pod.role}-{'.'.join(map(str, pod.rank))}"
            yield AskingPod(
                pod, network, network.ipam, StickyPod(self._holder(pod), rank, pod.name, number, pod.leaving), vfs
            )

    def _network(self, pod: TrainingPod, vfs: int) -> Network | None:
        if not is_sticky(pod.annotations):
            return None
        if not pod.rank:
            raise Misconfigured(
                f"{STICKY_ANNOTATION} is true, but the pod has no rank that an address could stay with; label each pod of the job "
                "railnet.io/rank, or remove the annotation"
            )
        if not _can_be_an_object(self._holder(pod).root):
            raise Misconfigured(
                f"{STICKY_ANNOTATION} is true, but the pod's owner is named by a reference that is longer than any object's; remove it"
            )
        annotations = {key: text for key, text in pod.annotations.items() if key != ADDRESS_ANNOTATION}
        return self._networks.choose(pod.job.namespace, annotations, vfs).network

    def _holder(self, pod: TrainingPod) -> Holder:
        root = None if pod.owner is None else self._owners.root(pod.job.namespace, pod.owner)
        return Holder(pod.job.namespace, pod.job.name, root)

    def _assigned(self, asking: Iterable[AskingPod], before: Mapping[str, Numbers]) -> dict[str, Assignment[Holder]]:
        """Return the numbers of each network, and the members that they are assigned to."""
        assignments = {}
        for network in self._networks:
            if isinstance(network.ipam, StickyIpam):
                every = numbers(network.ipam)
                kept = {  # the range may have become smaller
                    holder: {rank: number for rank, number in ranks.items() if number in every}
                    for holder, ranks in before.get(network.name, {}).items()
                }
                assignments[network.name] = assign(
                    every, kept, [request.member for request in asking if request.network is network]
                )
        return assignments

    def _released(self, table: Table, pods: Iterable[TrainingPod]) -> tuple[float | None, dict[str, Numbers]]:
        """Return the numbers without those of jobs that are over, and after how many seconds to look again."""
        living = {self._holder(pod) for pod in pods}
        self._there -= living
        again: float | None = None
        kept: dict[str, Numbers] = {}
        gone: dict[Holder, bool] = {}
        for network, jobs in table.networks.items():
            unknown = jobs.keys() - living - self._there - gone.keys()
            left = _MOST_ROOTS_AT_ONCE - len(gone)
            if len(unknown) > left:
                again = _ROOT_LEAVES_SECONDS
            # By chance: the jobs of a tenant that wait for finalizers without end must not be the first in every look.
            for holder in random.sample(list(unknown), min(left, len(unknown))):
                life = Life.UNKNOWN if holder.root is None else self._owners.life(holder.namespace, holder.root)
                gone[holder] = life in (Life.GONE, Life.UNKNOWN)
                if life is Life.THERE:
                    self._there.add(holder)
                if life is Life.LEAVING:
                    again = _ROOT_LEAVES_SECONDS
            kept[network] = {holder: ranks for holder, ranks in jobs.items() if not gone.get(holder, False)}
        return again, kept

    def _give(self, asking: Iterable[AskingPod], assigned: Mapping[str, Assignment[Holder]]) -> None:
        """Have each pod annotated that has a number now, and another annotation."""
        given = {}
        for request in asking:
            number = assigned[request.network.name].given.get(request.member)
            if number is not None:
                given[_name(request.pod)] = addresses(request.ipam, number, request.vfs)
        self._repeated.keep(given)
        with self._lock:
            for request in asking:
                name, annotation = _name(request.pod), request.pod.annotations.get(ADDRESS_ANNOTATION)
                if annotation == self._written.get(name):
                    self._written.pop(name, None)
            self._written = {name: text for name, text in self._written.items() if given.get(name) == text}
            self._due = {
                name: given[name]
                for request in asking
                if (name := _name(request.pod)) in given
                and request.pod.annotations.get(ADDRESS_ANNOTATION) != given[name]
                and name not in self._written
            }
            deferred = {_name(request.pod) for request in asking if self._gangs and request.pod.gated}
            due = self._due.keys() - deferred
        for name in due:
            self.patches.add(name)

    def _say(self, asking: Iterable[AskingPod], assigned: Mapping[str, Assignment[Holder]]) -> None:
        """Write events about what is wrong."""
        for name, assignment in assigned.items():
            here = {request.member: request for request in asking if request.network.name == name}
            for member in assignment.short:
                request = here[member]
                self._events.warning(_about(request), "StickyAddressesExhausted", _exhausted(name, request.ipam))
            for member, other in assignment.waiting:
                self._events.warning(_about(here[member]), "StickyAddressInUse", _in_use(here[member], here[other].pod))
            for member, number in assignment.given.items():
                request = here[member]
                rightly = addresses(request.ipam, number, request.vfs)
                if request.pod.addresses and request.pod.addresses != tuple(_plain(rightly)):
                    self._events.warning(request.pod.involved, "StickyAddressDiffers", _differs(request.pod, rightly))

    def _full(self, asking: Iterable[AskingPod], before: Table) -> None:
        """Say that the table has no room, to the jobs that need some."""
        for request in asking:
            if not _has_number(request, before.networks):
                text = (
                    f"ConfigMap {sticky_table.NAME} has no room for the addresses of more jobs; "
                    "delete jobs that have ended, or give fewer jobs addresses that stay with a rank"
                )
                self._events.warning(_about(request), "StickyAddressesExhausted", text)


def _numbers(kept: Mapping[str, Numbers], assigned: Mapping[str, Assignment[Holder]]) -> dict[str, Numbers]:
    return {**kept, **{name: assignment.numbers for name, assignment in assigned.items()}}


def _has_number(request: AskingPod, kept: Mapping[str, Numbers]) -> bool:
    return request.member.rank in kept.get(request.network.name, {}).get(request.member.holder, {})


def _without(kept: Mapping[str, Numbers], given: Iterable[AbsentRank]) -> dict[str, Numbers]:
    """Return the numbers without those that ranks have given back."""
    gone = {(rank.network, rank.holder, rank.rank) for rank in given}
    left = {
        name: {
            holder: {rank: number for rank, number in ranks.items() if (name, holder, rank) not in gone}
            for holder, ranks in jobs.items()
        }
        for name, jobs in kept.items()
    }
    return {name: {holder: ranks for holder, ranks in jobs.items() if ranks} for name, jobs in left.items()}


def _can_be_an_object(owner: OwnerReference | None) -> bool:
    """Return whether an object can have this reference. The API server accepts any texts in it, and the table has them."""
    texts = () if owner is None else (owner.api_version, owner.kind, owner.name, owner.uid)
    return all(len(text) <= LONGEST_TEXT for text in texts)


def _name(pod: TrainingPod) -> PodName:
    return PodName(pod.job.namespace, pod.name, pod.uid)


def _about(request: AskingPod) -> InvolvedObject:
    root = request.member.holder.root
    return request.pod.involved if root is None else root.involved(request.pod.job.namespace)


def _plain(annotation: str) -> Iterator[str]:
    return (text.partition("/")[0] for text in annotation.split(","))


def _exhausted(network: str, ipam: StickyIpam) -> str:
    every = numbers(ipam)
    return (
        f"all {every.stop - every.start} addresses of network {network!r} are assigned, so pods of this job wait; delete jobs that have "
        f"ended, or have the administrator enlarge networks.{network}.ipam.range"
    )


def _in_use(request: AskingPod, other: TrainingPod) -> str:
    if other.leaving:
        remedy = f"it is being deleted; if its node {other.node} is gone for good, delete the pod with --force"
    else:
        remedy = "delete one of the two pods, or give each its own railnet.io/rank"
    return f"pod {request.pod.name} waits, because pod {other.name} has the address of {request.member.rank}: {remedy}"


def _left_alone(text: str) -> str:
    return (
        f"{ADDRESS_ANNOTATION}: {text} was written {MOST_WRITES} times within {WINDOW_SECONDS:g} s, and was changed or removed each time, so the pod is left "
        "alone until that time is over; its managedFields say what else writes it: stop that"
    )


def _differs(pod: TrainingPod, rightly: str) -> str:
    return (
        f"the pod has {', '.join(pod.addresses)}, but the address of its rank is {rightly}: its annotation {ADDRESS_ANNOTATION} was "
        "changed before it started; delete the pod, so that it is made again"
    )
