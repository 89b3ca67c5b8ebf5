"""Host-network mode: what is changed in a pod whose annotation asks for the host's network.

Pure. The pod gets a port of the host that no other pod has. Its own process must listen there, so the port is written where its framework
reads it: its own entry of TF_CONFIG, the address of rank 0 in rank 0's own environment, and RAILNET_HOST_PORT for any other program. The
addresses of all other pods stay as they are: their Services forward to the ports that these have. A pod that has the host's network
already keeps its ports: its operator or an earlier review gave them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from railnet.admission import tf_config
from railnet.admission.environment import Variable
from railnet.admission.railnet_annotations import RENDEZVOUS
from railnet.errors import Misconfigured
from railnet.jobs.railnet_labels import HOST_PORT, NETWORK_MODE
from railnet.jobs.recogniser import RecognisedPod
from railnet.objects.pod import Container, Pod

HOST = "host"
KUBEDL_MODE = "kubedl.io/network-mode"  # KubeDL reads it on the job only; on a pod it comes from the job's template
VARIABLE = "RAILNET_HOST_PORT"
DNS_POLICY = "ClusterFirstWithHostNet"
_DEFAULT_DNS_POLICIES = (
    "",
    "ClusterFirst",
)  # on the host's network this one means the node's resolver, without Services
_PORT_NAME = "railnet"
_LOCALHOST = "localhost"
# Where rank 0 reads the address at which it waits for the others: torchrun and PyTorch, and JAX.
_ADDRESS_AND_PORT = (
    ("MASTER_ADDR", "MASTER_PORT"),
    ("PET_MASTER_ADDR", "PET_MASTER_PORT"),
    ("COORDINATOR_ADDRESS", "COORDINATOR_PORT"),
)
_ENDPOINTS = ("PET_RDZV_ENDPOINT",)  # address and port in one
# XGBoost's tracker tells the others the address by which rank 0 reached it, which must not be localhost.
_KEEPS_ADDRESS = ("xgboost", "xgboostjob")


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """The changes that put a pod on the host's network.

    Attributes:
        port: the port of the host, and of the container.
        position: the place among the container's ports of the one that becomes `port`; None if it is added.
        name: the name of that port.
        named: whether the port has the name already.
        resolves: whether `dnsPolicy` changes, so that the pod still finds Services.
        added, replaced: environment variables.
        fixed: the numbers of other declared ports of the pod, which stay.
    """

    port: int
    position: int | None
    name: str
    named: bool
    resolves: bool
    added: tuple[Variable, ...] = ()
    replaced: tuple[Variable, ...] = ()
    fixed: tuple[int, ...] = ()


def wanted(pod: Pod, member: RecognisedPod, *, switched_on: bool) -> bool:
    """Return whether a review puts the pod on the host's network.

    Raises:
        Misconfigured: the pod asks for it, and cannot have it.
    """
    mode = _mode(pod)
    if mode is None or pod.host_network:
        return False
    if not switched_on:
        if mode == KUBEDL_MODE:
            return False
        raise Misconfigured(
            f"{mode} is {HOST}, but host-network mode is switched off in this cluster: have the administrator set "
            "webhook.hostNetwork.enabled=true of the chart, or remove the annotation"
        )
    _check(pod, member, mode)
    return True


def is_of_author(pod: Pod) -> bool:
    """Return whether a pod is on the host's network for its author's own reasons: no annotation asks for host-network mode."""
    return pod.host_network and _mode(pod) is None


def decided(pod: Pod, member: RecognisedPod, port: int) -> HostNetwork:
    """Return what the pod gets with a port.

    Raises:
        Misconfigured: TF_CONFIG is malformed.
    """
    container = pod.containers[member.container]
    position, expected = _position(member, container)
    name = "" if position is None else container.ports[position].name
    return HostNetwork(
        port=port,
        position=position,
        name=name or expected,
        named=bool(name),
        resolves=pod.dns_policy in _DEFAULT_DNS_POLICIES,
        added=() if VARIABLE in container.env else (Variable(VARIABLE, str(port)),),
        replaced=tuple(_replaced(pod, container, port)),
        fixed=tuple(_fixed(pod, container, position)),
    )


def _mode(pod: Pod) -> str | None:
    """Return the annotation that asks for the host's network; None if no annotation does."""
    mode = pod.annotations.get(NETWORK_MODE)
    if mode not in (None, HOST):
        raise Misconfigured(f'{NETWORK_MODE} is {mode!r:.80}; it should be "{HOST}", or be removed')
    if mode is not None:
        return NETWORK_MODE
    return KUBEDL_MODE if pod.annotations.get(KUBEDL_MODE) == HOST else None


def _check(pod: Pod, member: RecognisedPod, mode: str) -> None:
    operator = member.operator
    if operator.off_host:
        raise Misconfigured(
            f"{mode} is {HOST}, but {operator.name} cannot run in host-network mode: {operator.off_host}. Remove the "
            "annotation, and use net1"
        )
    if HOST_PORT in pod.annotations:
        raise Misconfigured(f"{HOST_PORT} is written by Railnet, not by the pod's author; remove it")
    if pod.annotations.get(RENDEZVOUS) == "net1":
        raise Misconfigured(
            f"{mode} is {HOST} and {RENDEZVOUS} is net1, but a pod on the host's network has no net1; remove one"
        )


def _position(member: RecognisedPod, container: Container) -> tuple[int | None, str]:
    """Return the place of the port at which the container waits for its peers, and the name that it should have."""
    ports = member.operator.ports
    expected = ports.get(container.name, _PORT_NAME)
    names = [port.name for port in container.ports]
    for name in (expected, *ports.values()):
        if name in names:
            return names.index(name), name
    return (0 if names else None), expected


def _fixed(pod: Pod, container: Container, position: int | None) -> Iterator[int]:
    for any_container in (*pod.containers, *pod.sidecars):
        for place, port in enumerate(any_container.ports):
            if any_container is not container or place != position:
                yield port.number


def _replaced(pod: Pod, container: Container, port: int) -> Iterator[Variable]:
    text = container.env.get(tf_config.VARIABLE)
    if text:
        after = tf_config.with_own_port(text, port)
        if after != text:
            yield Variable(tf_config.VARIABLE, after)
    for address, number in _ADDRESS_AND_PORT:
        if container.env.get(number) and _is_own(container.env.get(address), pod):
            yield Variable(number, str(port))
            if container.name not in _KEEPS_ADDRESS and container.env[address] != _LOCALHOST:
                yield Variable(address, _LOCALHOST)
    for name in _ENDPOINTS:
        host, _, _ = (container.env.get(name) or "").rpartition(":")
        if _is_own(host, pod):
            yield Variable(name, f"{_LOCALHOST}:{port}")


def _is_own(host: str | None, pod: Pod) -> bool:
    """Return whether a host is the pod itself: operators name each pod's Service after the pod."""
    return bool(host) and (host == _LOCALHOST or str(host).partition(".")[0] == pod.name)
