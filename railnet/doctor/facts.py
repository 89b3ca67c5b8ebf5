"""The facts that `railnet doctor` looks at: those of a node at one moment, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from railnet.kernel.roce_facts import RoceFacts
from railnet.kernel.sysfs.pci_bridges import PciBridge
from railnet.kubelet.root_folder import KubeletFolder
from railnet.vf.address_slice import IpNetwork
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import Network


@dataclass(frozen=True, slots=True)
class PortFacts:
    """The attributes that the subnet manager gave a function's first data port. LIDs are None where the file is absent; `pkeys` are the used entries."""

    lid: int | None
    sm_lid: int | None
    pkeys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unread:
    """A file or device that could not be read, and why; `errno` is that of the refused call, None if another thing was wrong."""

    where: str
    why: str
    errno: int | None = None


class KubeletFolders(NamedTuple):
    """Kubelet's folders: where the daemon looks, where the running kubelet has its root (None without one), and what is missing, in words.

    `is_there` is whether a kubelet runs that may be this host's, or one of the folders exists.
    """

    looked_for: KubeletFolder
    running: KubeletFolder | None = None
    missing: tuple[str, ...] = ()
    is_there: bool = True


@dataclass(frozen=True, slots=True)
class RuntimeProcess:
    """A process of the container runtime; `memlock` is its soft limit in bytes, None for unlimited."""

    name: str
    pid: int
    memlock: int | None


@dataclass(frozen=True, slots=True)
class PodProcess:
    """A process of a pod that has rails; `memlock` is as the runtime's. A process with the capability IPC_LOCK is not limited by it."""

    uid: str
    name: str
    pid: int
    memlock: int | None
    ipc_lock: bool


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that NVIDIA's driver serves, and what of the driver RDMA needs."""

    addresses: tuple[PciAddress, ...] = ()
    peermem: bool = False
    open_modules: bool = False


@dataclass(frozen=True, slots=True)
class Bridge:
    """The bridge cni0 beside flannel's lease: the gateway's address by the lease, and whether a link of the node has it."""

    gateway: str
    present: bool


@dataclass(frozen=True, slots=True)
class Daemon:
    """The daemon's answer to `railnet status`; None with the reason if there is none."""

    told: Mapping[str, Any] | None
    silence: str = ""


class InheritedSetting(NamedTuple):
    """One of `net.ipv4.conf` of a new network namespace: of all its links, and the first value of each link's own."""

    all: int
    default: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts.

    Attributes:
        configurations: the CNI configurations in the runtime's order; None if the folder could not be read.
        conflist_folder: the path of their folder on the host.
        inherited: the settings of `net.ipv4.conf` that a new pod's namespace gets, by name; without those that cannot be read.
        ranges: the addresses of each configured network that has a range.
        occupied: the addresses of pods and Services, by where they are said.
        iommu: the type of the IOMMU group of each PF that has one, such as `DMA-FQ` or `identity`.
        pci_bridges: the bridges on the short way between cards and GPUs.
        clock_is_synchronised: None if the kernel does not say.
        primary_trouble: why the primary network cannot make a pod's network, as Railnet's STATUS says; None if it can.
        is_node: whether anything of a Kubernetes node is there: a kubelet, its root folder, or a folder of CNI configurations.
        allocated: the VFs that kubelet has given by its checkpoint and by claims, by the pod's UID; None if that cannot be read.
    """

    inventory: Inventory
    daemon: Daemon
    ports: Mapping[PciAddress, PortFacts] = field(default_factory=dict)
    roce: RoceFacts = field(default_factory=RoceFacts)
    runtimes: tuple[RuntimeProcess, ...] = ()
    pod_processes: tuple[PodProcess, ...] = ()
    gpus: Gpus = Gpus()
    configurations: tuple[str, ...] | None = None
    conflist_folder: str = "/etc/cni/net.d"
    bridge: Bridge | None = None  # None if there is no lease or no bridge
    networks: tuple[Network, ...] = ()
    inherited: Mapping[str, InheritedSetting] = field(default_factory=dict)
    ranges: Mapping[str, IpNetwork] = field(default_factory=dict)
    occupied: Mapping[str, IpNetwork] = field(default_factory=dict)
    iommu: Mapping[PciAddress, str] = field(default_factory=dict)
    pci_bridges: tuple[PciBridge, ...] = ()
    clock_is_synchronised: bool | None = None
    allocated: Mapping[str, frozenset[str]] | None = None
    kubelet: KubeletFolders | None = None
    primary_trouble: str | None = None
    is_node: bool = True
    wrong_configuration: str | None = None
    unread: tuple[Unread, ...] = ()
