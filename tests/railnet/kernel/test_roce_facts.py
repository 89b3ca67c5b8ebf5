"""GIDs, traffic class and flow control of the RoCE ports of a sysfs tree."""

import asyncio
import os
from errno import ENODEV
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from railnet.fabric.roce import FlowControl, Gid, RocePort
from railnet.kernel import roce_facts
from railnet.kernel.netlink import dcb
from railnet.kernel.roce_facts import RoceFacts
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel import nodes
from tests.railnet.kernel.roce_node import LOCAL, PF, VF, roce_node
from tests.railnet.kernel.tree import Tree

PF_ADDRESS, VF_ADDRESS = PciAddress.parse(PF), PciAddress.parse(VF)
LOSSLESS = FlowControl((3,), by_dscp=True)


def read(root: Path, seconds: float = 3) -> RoceFacts:
    sysfs = Sysfs(root)
    sysfs.reads = BoundedReads(seconds)
    return asyncio.run(roce_facts.read(sysfs, sysfs.inventory()))


@pytest.fixture(autouse=True)
def lossless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcb, "flow_control", {"ens5": LOSSLESS}.__getitem__)


def test_ports_have_their_gids_and_the_driver_its_traffic_class(tmp_path: Path) -> None:
    Tree(tmp_path).write(
        roce_node((3, "RoCE v2", "0000:0000:0000:0000:0000:ffff:0a3a:0001"), traffic_class="Global tclass=106")
    )

    found = read(tmp_path)

    local = [Gid(index, IPv6Address(LOCAL), version) for index, version in enumerate((1, 2))]
    routable = Gid(3, IPv6Address("::ffff:10.58.0.1"), 2)
    assert found.ports == {
        PF_ADDRESS: RocePort(tuple(local), "Global tclass=106"),
        VF_ADDRESS: RocePort((*local, routable)),
    }
    assert found.flow_control == {PF_ADDRESS: LOSSLESS}
    assert found.unread == {}


def test_table_is_read_until_many_entries_in_a_row_are_unused(tmp_path: Path) -> None:
    reached, beyond = (("RoCE v2", f"0000:0000:0000:0000:0000:ffff:0a3a:00{number}") for number in ("01", "02"))
    Tree(tmp_path).write(roce_node((17, *reached), (40, *beyond)))

    assert [gid.index for gid in read(tmp_path).ports[VF_ADDRESS].gids] == [0, 1, 17]


def test_node_of_infiniband_ports_is_not_read(tmp_path: Path) -> None:
    Tree(tmp_path).write(tuple(nodes.cx7()))

    assert read(tmp_path) == RoceFacts()


def test_bad_gid_costs_its_function_alone(tmp_path: Path) -> None:
    Tree(tmp_path).write(roce_node((3, "RoCE v2", "nonsense")))

    found = read(tmp_path)

    assert set(found.ports) == {PF_ADDRESS}
    assert "gids/3" in found.unread[VF_ADDRESS]
    assert found.flow_control == {PF_ADDRESS: LOSSLESS}


@pytest.mark.slow
def test_pf_that_hangs_costs_itself_alone(tmp_path: Path) -> None:
    Tree(tmp_path).write(roce_node())
    (hung,) = (tmp_path / "devices").rglob(f"{PF}/infiniband/*/ports/1/gid_attrs/types/0")
    hung.unlink()
    os.mkfifo(hung)

    found = read(tmp_path, seconds=0.2)
    os.close(os.open(hung, os.O_WRONLY))  # the thread ends

    assert set(found.ports) == {VF_ADDRESS}
    assert "have not answered" in found.unread[PF_ADDRESS]
    assert found.flow_control == {}


def test_netdev_that_went_away_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> FlowControl:
        raise OSError(ENODEV, "read DCB of ens5: No such device")

    monkeypatch.setattr(dcb, "flow_control", gone)
    Tree(tmp_path).write(roce_node())

    found = read(tmp_path)

    assert set(found.ports) == {PF_ADDRESS, VF_ADDRESS}
    assert "No such device" in found.unread[PF_ADDRESS]
