"""Decides the names of a job's pods on net1: the Services, the records in each, and the slices that the records are in.

A record stays in its slice for as long as its pod has the same name, and a new record goes into the first slice that has room. So a pod's
change touches one slice. The slices follow from the pods and the slices before alone: a leader that dies between two writes has a
successor that does the other ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import NamedTuple

from railnet.controllers.training_pod import Job, TrainingPod
from railnet.errors import Misconfigured, NotPermitted
from railnet.jobs import railnet_labels
from railnet.jobs.net1_names import hostname, service, task_service
from railnet.objects import network_status
from railnet.objects.network_status import usable_address
from railnet.objects.owner_reference import OwnerReference
from railnet.vf.permitted_networks import ADDRESS_ANNOTATION, Networks

TASK = "task"  # the value of the annotation `railnet_labels.NAMES`
_MOST_RECORDS = 100  # in a slice: kube-controller-manager --max-endpoints-per-slice


class Family(StrEnum):
    """The addressType of a slice."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"


class Net1Record(NamedTuple):
    """An endpoint: an address, and the pod that has it.

    `hostname` comes before the Service's name; it is empty in the Service of one task, whose own name leads to the address.
    """

    hostname: str
    address: str
    pod: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Service:
    """A headless Service without a selector. `scope` is `job` or `task`; `owner` goes before it, None if nothing does."""

    job: Job
    name: str
    scope: str
    owner: OwnerReference | None


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    """An EndpointSlice of a Service."""

    name: str
    service: Service
    family: Family
    records: tuple[Net1Record, ...]

    @property
    def job(self) -> Job:
        """The job of its Service."""
        return self.service.job


@dataclass(frozen=True, slots=True)
class Names:
    """A Service, and all its records by family."""

    service: Service
    records: Mapping[Family, tuple[Net1Record, ...]]


class NamesRefused(NamedTuple):
    """The reason why there is no name on net1, in words for the job's author; `pod` is None if all pods of the job lack one."""

    pod: TrainingPod | None
    text: str


def members(pods: Iterable[TrainingPod]) -> list[TrainingPod]:
    """Return the pods that have not ended, and may have an address on net1: a name of a finished job is free."""
    there = (pod for pod in pods if not (pod.ended or pod.stopped or pod.host_network))
    return [pod for pod in there if pod.addresses or ADDRESS_ANNOTATION in pod.annotations]


def addressed(pods: Iterable[TrainingPod], networks: Networks) -> tuple[list[TrainingPod], list[NamesRefused]]:
    """Return the members with those of their addresses that may be in a slice, at most one of each family, and what cannot be.

    An account that may write a pod may write its addresses, and the controllers write slices with a right that few tenants have. So an address
    counts only if it is of a network of the configuration: else a slice could lead to any host (CVE-2021-25740).
    """
    with_addresses: list[TrainingPod] = []
    refused: list[NamesRefused] = []
    for pod in pods:
        try:
            addresses = tuple(_addresses(pod, networks))
        except (Misconfigured, NotPermitted) as error:
            refused.append(NamesRefused(pod, f"the pod has no name on net1: {error}"))
            continue
        if addresses:
            with_addresses.append(pod if pod.addresses == addresses else pod._replace(addresses=addresses))
    return with_addresses, refused


def wanted(pods: Sequence[TrainingPod], owner: OwnerReference | None) -> tuple[list[Names], list[NamesRefused]]:
    """Return the Services that the members of a job should have, the job's own first, and what cannot be.

    Args:
        pods: the job's members with their addresses, as `addressed` returns them; at least one, sorted by name.
        owner: the one object that all of them began with; None if there is no such object.
    """
    job = pods[0].job
    names: list[Names] = []
    refused: list[NamesRefused] = []
    try:
        of_job = Service(job, service(job.name), "job", owner)
        names.append(Names(of_job, _records(pods, of_job)))
    except Misconfigured as error:
        refused.append(NamesRefused(None, str(error)))
    for name, task in _tasks(pods, refused).items():
        of_task = Service(job, name, TASK, owner)
        names.append(Names(of_task, _records(task, of_task)))
    return names, refused


def slices(names: Names, before: Iterable[EndpointSlice]) -> list[EndpointSlice]:
    """Return the slices that a Service should have; `before` are those that it has."""
    of_service = sorted((old_slice for old_slice in before if old_slice.service.name == names.service.name), key=_place)
    return [
        new_slice
        for family, records in sorted(names.records.items())
        for new_slice in _packed(
            names.service, family, records, [old_slice for old_slice in of_service if old_slice.family is family]
        )
    ]


def _packed(
    service: Service, family: Family, records: Iterable[Net1Record], before: Iterable[EndpointSlice]
) -> Iterator[EndpointSlice]:
    left = {record.pod: record for record in records}
    kept = {old_slice.name: _taken(left, old_slice) for old_slice in before}
    for name in _slice_names(service, family, kept):
        if not left:
            break
        staying = kept.setdefault(name, [])
        for pod in sorted(left)[: max(_MOST_RECORDS - len(staying), 0)]:
            staying.append(left.pop(pod))
    for name, staying in kept.items():
        if staying:
            yield EndpointSlice(name, service, family, tuple(sorted(staying)))


def _taken(left: dict[str, Net1Record], before: EndpointSlice) -> list[Net1Record]:
    """Take the newer state of a slice's records out of `left`."""
    pods = [record.pod for record in before.records if record.pod in left][:_MOST_RECORDS]
    return [left.pop(pod) for pod in dict.fromkeys(pods)]


def _slice_names(service: Service, family: Family, names: Iterable[str]) -> Iterator[str]:
    yield from list(names)
    prefix = f"{service.name}-" if family is Family.IPV4 else f"{service.name}-v6-"
    number = 0
    while True:
        if f"{prefix}{number}" not in names:
            yield f"{prefix}{number}"
        number += 1


def _place(endpoint_slice: EndpointSlice) -> tuple[int, str]:
    return len(endpoint_slice.name), endpoint_slice.name


def _tasks(pods: Iterable[TrainingPod], refused: list[NamesRefused]) -> dict[str, list[TrainingPod]]:
    """Return the pods of each task that asks for a name. While a task's pod leaves, its successor alone has the name."""
    tasks: dict[str, list[TrainingPod]] = {}
    for pod in pods:
        asked = pod.annotations.get(railnet_labels.NAMES)
        if asked is None:
            continue
        try:
            tasks.setdefault(_task(pod, asked), []).append(pod)
        except Misconfigured as error:
            refused.append(NamesRefused(pod, str(error)))
    return {name: [pod for pod in task if not pod.leaving] or task for name, task in sorted(tasks.items())}


def _task(pod: TrainingPod, asked: str) -> str:
    if asked != TASK:
        raise Misconfigured(
            f"annotation {railnet_labels.NAMES} is {asked!r:.80}; it can be {TASK!r}, for a name of the pod's task on net1"
        )
    if not pod.rank:
        raise Misconfigured(
            f"annotation {railnet_labels.NAMES} is {TASK!r}, but the pod has no rank, which the task's name ends with; label each pod of the job "
            f"{railnet_labels.RANK}, or remove the annotation"
        )
    return task_service(pod.job.name, pod.role, pod.rank)


def _records(pods: Iterable[TrainingPod], service: Service) -> dict[Family, tuple[Net1Record, ...]]:
    records_by_family: dict[Family, list[Net1Record]] = {}
    for pod in pods:
        label = "" if service.scope == TASK else hostname(pod.name)
        for address in pod.addresses:
            record = Net1Record(label, address, pod.name, pod.uid, pod.node)
            records_by_family.setdefault(_family(address), []).append(record)
    return {family: tuple(records) for family, records in records_by_family.items()}


def _family(address: str) -> Family:
    return Family.IPV6 if ":" in address else Family.IPV4


def _addresses(pod: TrainingPod, networks: Networks) -> Iterator[str]:
    """Yield the address of net1 of each family. All rails of a pod are of one network, so the first ones are those of net1.

    A pod that has not started has the address that its annotation names; a pod that has no node has not started.

    Raises:
        Misconfigured, NotPermitted: the pod cannot have such an address.
    """
    first: dict[Family, str] = {}
    for text in pod.addresses if pod.node else ():
        first.setdefault(_family(text), text)
    if not first:
        yield from _annotated(pod, networks)
    for text in first.values():
        try:
            networks.check_reported(pod.job.namespace, pod.network, ip_address(text))
        except (Misconfigured, NotPermitted) as error:
            raise type(error)(f"its annotation {network_status.ANNOTATION}: {error}") from None
        yield text


def _annotated(pod: TrainingPod, networks: Networks) -> Iterator[str]:
    text = pod.annotations.get(ADDRESS_ANNOTATION, "")
    try:
        address = usable_address(text.partition(",")[0].partition("/")[0].strip())
    except ValueError:
        return
    if address:
        networks.choose(pod.job.namespace, pod.annotations, text.count(",") + 1)
        yield address
