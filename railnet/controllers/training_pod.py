"""A pod of a training job, reduced to what the controllers read of it."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from railnet.apiserver.request import JsonObject
from railnet.jobs.gang.recogniser import GATE
from railnet.jobs.operators import Part
from railnet.jobs.railnet_labels import NAMES, PS_CLEANUP
from railnet.jobs.reported_pod import ReportedPod
from railnet.objects import network_status
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.metadata_times import created_text, is_deleted
from railnet.objects.network_status import PublishedRail
from railnet.objects.owner_reference import OwnerReference, controller
from railnet.objects.pod import Pod
from railnet.objects.pod_phase import ENDED, phase
from railnet.objects.quantity import count
from railnet.vf.permitted_networks import ADDRESS_ANNOTATION, NETWORK_ANNOTATION, STICKY_ANNOTATION

# The annotations that are read, with the characters that are kept of each: its author may write 256 KiB, and a cluster has ten thousand pods.
_READ = {NETWORK_ANNOTATION: 256, ADDRESS_ANNOTATION: 1024, STICKY_ANNOTATION: 64, NAMES: 64, PS_CLEANUP: 64}
_MOST_ADDRESSES = 128  # of one pod: of each family for each of 64 rails. An annotation has room for fifteen thousand
_MOST_RESOURCES = 16


class Job(NamedTuple):
    """The name of a training job in the cluster: its namespace, and the name of the job that its pods have."""

    namespace: str
    name: str


class TrainingPod(NamedTuple):
    """A pod of a training job.

    Attributes:
        operator: the name of the operator that made it (`railnet.jobs.operators`).
        rank: its position among the pods of its role; empty if it has none.
        part: the part that its role takes.
        size: how many pods the job has; None if the pod does not say it.
        owner: its controller; None for a pod that nothing makes again.
        node: where it runs; empty before it is bound.
        phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        leaving: whether it has been deleted, and the API server has not forgotten it yet.
        stopped: whether it is leaving, and none of its containers runs.
        host_network: whether it uses the node's network.
        addresses: its addresses of net1, net2 and so on; empty before they are known. Anyone who may change the pod may have written them.
        annotations: those that the controllers read, of each as much as a pod with the most rails needs.
        created: when it was created, as the API server writes times.
        devices: how many of each extended resource its containers ask for.
        gated: whether it waits for the other members of its gang.
        network: the name of the network that its addresses are said to be of; all rails of a pod are of one network.
        rails: the numbers of its rails. Anyone who may change the pod may have written them.
    """

    job: Job
    name: str
    uid: str
    operator: str
    role: str
    rank: tuple[int, ...]
    part: Part
    size: int | None
    owner: OwnerReference | None
    node: str
    phase: str
    leaving: bool
    host_network: bool
    addresses: tuple[str, ...]
    annotations: Mapping[str, str]
    created: str = ""
    devices: Mapping[str, int] = MappingProxyType({})
    stopped: bool = False
    gated: bool = False
    network: str = ""
    rails: frozenset[int] = frozenset()

    @property
    def involved(self) -> InvolvedObject:
        """The pod as what an event is about."""
        return InvolvedObject("v1", "Pod", self.job.namespace, self.name, self.uid)

    @property
    def ended(self) -> bool:
        """True if all its containers have ended and none starts again."""
        return self.phase in ENDED


def training_pod(reported: ReportedPod) -> TrainingPod | None:
    """Reduce a pod as the API server reports it; None if it is no pod of a training job, or its annotations are malformed.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the API server sends no such pod.
    """
    pod, member, document = reported.pod, reported.member, reported.document
    if pod is None or member is None:
        return None
    metadata, status = document["metadata"], document.get("status") or {}
    leaving = is_deleted(metadata)
    # Only a node gives addresses: what the author of a waiting pod writes is not read, so that such pods are small.
    rails = network_status.rails(pod.annotations.get(network_status.ANNOTATION, "")) if pod.node else ()
    network = rails[0].network if rails else ""
    return TrainingPod(
        job=Job(pod.namespace, member.job),
        name=metadata["name"],
        uid=metadata["uid"],
        operator=member.operator.name,
        role=member.role,
        rank=member.rank,
        part=member.part,
        size=member.size,
        owner=controller(document),
        node=pod.node,
        phase=phase(document),
        leaving=leaving,
        host_network=pod.host_network,
        addresses=tuple(islice(_addresses(rails, network), _MOST_ADDRESSES)),
        annotations={key: pod.annotations[key][:most] for key, most in _READ.items() if key in pod.annotations},
        created=created_text(metadata),
        devices=_devices(pod),
        stopped=leaving and _has_stopped(status),
        gated=GATE in pod.gates,
        network=network.removeprefix(network_status.OF_RAILNET),
        rails=network_status.numbers_of(rails),
    )


def _addresses(rails: Iterable[PublishedRail], network: str) -> Iterator[str]:
    return (address for rail in rails if rail.network == network for address in rail.addresses)


def _devices(pod: Pod) -> Mapping[str, int]:
    devices: dict[str, int] = {}
    for container in (*pod.containers, *pod.sidecars):
        for resource, quantity in container.resources.items():
            if "/" in resource:  # only extended resources have a slash in their names
                devices[resource] = devices.get(resource, 0) + count(quantity)
    return dict(islice(devices.items(), _MOST_RESOURCES))


def _has_stopped(status: JsonObject) -> bool:
    """Return whether no container runs. In a pod that was deleted none starts again.

    The phase does not say so before kubelet 1.27 (kubernetes/kubernetes#115331): a pod whose containers would start again otherwise
    is `Running` until kubelet lets go of it, ten seconds later and more. In the meantime its containers are terminated; or, when
    kubelet has removed them already, waiting to be created (kubelet 1.20).
    """
    containers = status.get("containerStatuses") or ()
    return bool(containers) and not any((container.get("state") or {}).get("running") for container in containers)
