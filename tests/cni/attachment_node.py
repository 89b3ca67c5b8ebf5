"""A node's sysfs tree, its journal and one sandbox, with a kernel that only notes its steps: what attachments need."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from cni import request as requests
from cni.attachment import attachments, netdev_return
from cni.attachment.attachments import Attachments
from cni.attachment.host_netdev_lookup import NetdevLookup
from cni.attachment.ipam_release_by_daemon import IpamRelease
from cni.attachment.journal import Journal
from cni.attachment.local_ipam import LocalIpam
from cni.attachment.netdev_return import NodeNetdevs
from cni.attachment.vf_reassignment import Claims
from cni.host.chain import Primary
from cni.host_delegates import HostDelegates
from cni.rail_observers import TookBack, count_nothing
from cni.recovery.missing_netdevs import OrphanVfs, Pods
from cni.recovery.namespace_observation import SandboxNamespaces
from cni.recovery.record_repair import RecordRepair
from cni.recovery.sweep import Recovery
from cni.sandbox_locks import PerKey
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.inventory import Netdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import DEFAULT, Network, Networks, NoIpam
from railnet.vf.record import Record
from railnet.vf.restored_link_settings import Settings, Value
from railnet.vf.steps import RenameLink, ResetLink
from railnet.vf.vf_table import VfTable
from tests.cni.fake_executable import CONF, ENVIRON
from tests.railnet.kernel.tree import ON_NODE, UNBOUND, Tree, netdev

Result = TypeVar("Result")
VF, NO_DRIVER = PciAddress.parse(ON_NODE), PciAddress.parse(UNBOUND)
KEY, NETNS = "c0ffee@eth0", "run/netns/cni-1"
PRIMARY = Primary("n", "1.0.0", [])


class Kernel:
    """Notes the steps it is asked for; `refuses` is raised instead, `then` is called after. A reset leaves what `keeps` has.

    `moved` is what taking back finds on the node by itself; without it, sysfs says what became of a netdev.
    """

    def __init__(self) -> None:
        self.taken_names: frozenset[str] = frozenset()  # of the node's other links
        self.steps: list[object] = []
        self.tries = 0
        self.resets: list[ResetLink] = []
        self.keeps: dict[str, Value] = {}
        self.moved: dict[PciAddress, Netdev] = {}
        self.names_in_netlink: frozenset[str] = frozenset()  # sysfs shows netdevs later than netlink names them
        self.refuses: Exception | None = None
        self.then: Callable[[], None] = lambda: None

    def attach(self, steps: Iterable[object], netns_fd: int, root: Path, sysfs: Sysfs) -> dict[PciAddress, Settings]:
        self._do(steps)
        return {}

    def reset(self, step: ResetLink) -> dict[str, Value]:
        self.resets.append(step)
        return self.keeps

    def detach(self, steps: Iterable[object], netns_fd: int | None) -> None:
        self._do(steps)

    def rename(self, steps: Iterable[RenameLink]) -> tuple[RenameLink, ...]:
        steps = tuple(steps)
        self._do(steps)
        return tuple(step for step in steps if step.ifname not in self.taken_names)

    def take_back(self, steps: Iterable[object], netns_fd: int, sysfs: Sysfs) -> dict[PciAddress, Netdev]:
        self._do(steps)
        return self.moved

    def links_on_node(self, ifnames: Iterable[str]) -> frozenset[str]:
        return frozenset(ifnames) & self.names_in_netlink

    def probe_again(self, step: object, sysfs: Sysfs) -> None:
        self.steps.append(step)
        if self.refuses is not None:
            raise self.refuses
        self.then()

    def _do(self, steps: Iterable[object]) -> None:
        self.tries += 1
        if self.refuses is not None:
            raise self.refuses
        self.steps += steps
        self.then()


async def no_pods() -> dict[PciAddress, str]:
    """Return that kubelet gave no VF to a pod."""
    return {}


def a_node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> "Node":
    """Make a node whose kernel notes the steps that it is asked for."""
    kernel = Kernel()
    for module in (netdev_return, attachments):
        monkeypatch.setattr(module, "perform", kernel)
    monkeypatch.setattr(netdev_return, "vf_provisioning", kernel)
    return Node(folder, kernel)


class Node:
    """A sysfs tree, a journal, and a sandbox whose namespace is a file of the test's."""

    def __init__(self, folder: Path, kernel: Kernel) -> None:
        self.kernel = kernel
        self.tree = Tree(folder / "sys")
        self.tree.whole()
        self._activate_ports()
        self.netns = folder / NETNS
        self.netns.parent.mkdir(parents=True)
        self.netns.touch()
        (folder / "proc").mkdir()
        self.journal = Journal(folder / "journal", folder / "quarantine")
        self.sysfs = Sysfs(self.tree.root)
        self.table = VfTable(self.sysfs.inventory())
        self.network = Network(wait=0.1, ipam=NoIpam())
        self.delegate_seconds = 5.0
        self.folder = folder
        self.locks = folder / "lock"
        self.boot = "boot-1"
        self.sandboxes = PerKey()

    def _activate_ports(self) -> None:
        for device in self.tree.root.glob("devices/**/infiniband/*"):
            for name, text in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("link_layer", "InfiniBand")):
                (device / "ports" / "1").mkdir(parents=True, exist_ok=True)
                (device / "ports" / "1" / name).write_text(f"{text}\n")

    def add_card(self) -> PciAddress:
        """Add a second card with one VF, whose netdev is on the node; return the VF."""
        vf = self.tree.second_card()
        self._activate_ports()
        self.table.refresh(self.sysfs.inventory())
        return PciAddress.parse(vf)

    def daemon(
        self,
        took_back: TookBack = count_nothing,
        pods: Pods = no_pods,
        now: Callable[[], float] = time.monotonic,
    ) -> "Daemon":
        """Compose what attaches and recovers, as a daemon that starts does; it awaits netdevs and VFs for 0.1 s."""
        self.locks.mkdir(exist_ok=True)
        return Daemon(self, took_back, pods, now)

    def run(self, main: Callable[[Attachments, int], Awaitable[Result]]) -> Result:
        """Run with a new daemon's attachments and the sandbox's descriptor."""

        async def whole() -> Result:
            netns_fd = os.open(self.folder / NETNS, os.O_RDONLY)
            try:
                return await asyncio.wait_for(main(self.daemon().attachments, netns_fd), 20)
            finally:
                os.close(netns_fd)

        return asyncio.run(whole())

    def sweep(self) -> None:
        """Start a daemon, sweep, and run the IPAM plugins that the sweep left."""

        async def sweep(recovery: Recovery) -> None:
            await recovery.sweep()
            await recovery.release_ipam()

        asyncio.run(asyncio.wait_for(sweep(self.daemon().recovery), 20))

    def netdev_is(self, name: str | None, ifindex: int = 31) -> None:
        """Show the VF's netdev under a name, or not at all."""
        shutil.rmtree(self.tree.devices / ON_NODE / "net", ignore_errors=True)
        for path, text in netdev(name, ifindex).items() if name else ():
            (self.tree.devices / ON_NODE / path).parent.mkdir(parents=True, exist_ok=True)
            (self.tree.devices / ON_NODE / path).write_text(text)

    def pkeys_are(self, *pkeys: str) -> None:
        """Write the PKey table of the VF's port."""
        (port,) = (self.tree.devices / ON_NODE).glob("infiniband/*/ports/1")
        (port / "pkeys").mkdir(exist_ok=True)
        for index in range(4):
            (port / "pkeys" / str(index)).write_text(f"{(*pkeys, *['0x0000'] * 4)[index]}\n")

    @property
    def state(self) -> tuple[str | None, bool]:
        """The record's stage, and whether the VF has an owner."""
        record = self.journal.get(KEY)
        return None if record is None else record.stage, self.table.owner(VF) is not None


class Daemon:
    """What attaches and recovers, composed as `railnet.daemon.composition` does it."""

    def __init__(self, node: Node, took_back: TookBack, pods: Pods, now: Callable[[], float]) -> None:
        table, journal, root, sandboxes = node.table, node.journal, node.folder, node.sandboxes
        self.claims = claims = Claims(table, 0.1)
        netdevs = NetdevLookup(table, node.sysfs, 0.1)
        node_netdevs = NodeNetdevs(table, node.sysfs, netdevs, root)
        ipam_release = IpamRelease(journal, HostDelegates(root, node.delegate_seconds, node.locks))
        self.attachments = Attachments(
            table=table,
            journal=journal,
            networks=Networks({DEFAULT: node.network}),
            claims=claims,
            netdevs=netdevs,
            node_netdevs=node_netdevs,
            local_ipam=LocalIpam(root / "subnet.env"),
            ipam_release=ipam_release,
            sysfs=node.sysfs,
            root=root,
            boot=node.boot,
        )
        self.repair = RecordRepair(
            table=table,
            journal=journal,
            claims=claims,
            node_netdevs=node_netdevs,
            sandboxes=sandboxes,
            boot=node.boot,
        )
        self.recovery = Recovery(
            journal=journal,
            sandboxes=sandboxes,
            namespaces=SandboxNamespaces(root, node.boot, node_netdevs),
            attachments=self.attachments,
            ipam_release=ipam_release,
            repair=self.repair,
            orphan_vfs=OrphanVfs(
                table=table,
                journal=journal,
                claims=claims,
                node_netdevs=node_netdevs,
                repair=self.repair,
                pods=pods,
                now=now,
            ),
            took_back=took_back,
        )


async def planned(attachments: Attachments, netns_fd: int | None, *vfs: PciAddress, conf: bytes = CONF) -> Record:
    return await attachments.plan(requests.parse(ENVIRON, conf, netns_fd), vfs or (VF,), PRIMARY)


async def attached(attachments: Attachments, netns_fd: int) -> Record:
    record = await planned(attachments, netns_fd)
    await attachments.attach(record, netns_fd)
    attachments.confirm(record)
    return record
