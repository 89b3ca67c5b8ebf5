"""PFs with their carriers: read by netlink, or just reported by the kernel."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from railnet.kernel import inventory
from railnet.kernel.netlink import pf_link_query
from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel.tree import PF, Tree

NO_CARRIER = PfLink(True, False, "DOWN", "52:54:00:00:00:01")
DOWN = PfLink(False, False, "DOWN", "52:54:00:00:00:01")
PF_ADDRESS = PciAddress.parse(PF)


class Node:
    """A node with one Ethernet PF; `links` are netlink's links, `asked` the ifindexes of all requests."""

    def __init__(self, folder: Path) -> None:
        Tree(folder).whole()
        self.sysfs = Sysfs(folder)
        pf = folder / "bus/pci/devices" / PF
        (pf / "class").write_text("0x020000\n")
        (pf / "infiniband/mlx5_0/ports/1/link_layer").write_text("Ethernet\n")
        (self.pf,) = self.sysfs.inventory().pfs
        assert self.pf.netdev is not None
        self.ifindex = self.pf.netdev.ifindex
        self.links: dict[int, PfLink] = {}
        self.asked: list[int] = []

    def read(self, ifindexes: Iterable[int]) -> dict[int, PfLink]:
        self.asked += ifindexes
        return {ifindex: self.links[ifindex] for ifindex in self.asked if ifindex in self.links}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path)
    monkeypatch.setattr(pf_link_query, "read", node.read)
    return node


@pytest.mark.parametrize(
    ("link", "carrier"), [(NO_CARRIER, False), (DOWN, None), (None, None)], ids=["no carrier", "down", "gone"]
)
def test_inventory_has_the_carriers_of_pfs(node: Node, link: PfLink | None, carrier: bool | None) -> None:
    node.links = {} if link is None else {node.ifindex: link}

    (pf,) = asyncio.run(inventory.inventory(node.sysfs, Inventory())).pfs

    assert (pf.carrier, pf.vfs) == (carrier, node.pf.vfs)


def test_reported_link_is_not_read_again(node: Node) -> None:
    reread = asyncio.run(inventory.reread_pfs(node.sysfs, [node.pf], {node.ifindex: NO_CARRIER}))

    assert (reread[PF_ADDRESS].carrier, node.asked) == (False, [])


def test_link_without_a_reported_state_is_read(node: Node) -> None:
    node.links = {node.ifindex: NO_CARRIER}

    reread = asyncio.run(inventory.reread_pfs(node.sysfs, [node.pf], {node.ifindex: None}))

    assert (reread[PF_ADDRESS].carrier, node.asked) == (False, [node.ifindex])


def test_carrier_of_an_infiniband_pf_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pf_link_query, "read", lambda ifindexes: dict.fromkeys(ifindexes, NO_CARRIER))
    Tree(tmp_path).whole()

    (pf,) = asyncio.run(inventory.inventory(Sysfs(tmp_path), Inventory())).pfs

    assert (pf.link_layer, pf.carrier) == ("InfiniBand", None)
