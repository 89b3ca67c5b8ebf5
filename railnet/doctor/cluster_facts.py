"""The facts that `railnet doctor --cluster` looks at: the nodes, the rails that pods have, and Railnet's own pods, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from railnet.apiserver.oldest_kubernetes import KubernetesVersion
from railnet.doctor.facts import Unread
from railnet.gangs.placement.node import Node
from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.slice_devices import PoolSlice
from railnet.objects.network_status import PublishedRail
from railnet.vf.address_slice import IpNetwork


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node.

    Attributes:
        node: its name, labels and taints that keep pods off, and whether its kubelet is well.
        has_rails: whether pods can be given any rail there.
        condition: the status and the message of its condition RailnetRails; None without the condition.
        pods_ranges: its `podCIDRs`.
        not_ready: what its condition Ready says if it is not True; empty if it is.
    """

    node: Node
    has_rails: bool
    condition: tuple[str, str] | None
    is_tainted: bool
    pods_ranges: tuple[IpNetwork, ...]
    not_ready: str = ""


@dataclass(frozen=True, slots=True)
class PodRails:
    """A pod that runs; `name` is its namespace and its name."""

    name: str
    node: str
    rails: tuple[PublishedRail, ...]


@dataclass(frozen=True, slots=True)
class RailnetPod:
    """A pod of one of Railnet's programs.

    Attributes:
        program: its label `app.kubernetes.io/name`.
        node: empty before it is bound.
        image: of the program's container.
        version: by its label `app.kubernetes.io/version`, or by the image's tag; empty if both do not say.
        is_current: whether it has neither ended nor been deleted.
        not_ready: why it is not ready, in words; empty if it is.
    """

    name: str
    program: str
    node: str
    image: str
    version: str
    is_current: bool
    not_ready: str


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All facts. None is for what could not be read: `unread` says why.

    Attributes:
        kubernetes: the API server's version; None also if its answer has none.
        pods: those that run and have rails.
        programs: Railnet's own pods.
        daemon_set: what the DaemonSet asks of a node.
        services: the addresses of Services, by what says it.
        slices: what nodes offer by DRA; none also where the API server has no slices.
    """

    kubernetes: KubernetesVersion | None = None
    nodes: tuple[ClusterNode, ...] | None = None
    pods: tuple[PodRails, ...] | None = None
    programs: tuple[RailnetPod, ...] | None = None
    has_daemon_set: bool | None = None
    daemon_set: Shape | None = None
    services: Mapping[IpNetwork, str] | None = None
    slices: tuple[PoolSlice, ...] = ()
    unread: tuple[Unread, ...] = ()
