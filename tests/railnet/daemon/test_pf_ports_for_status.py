"""The rates and partitions of PFs' ports for `railnet status`: in time, also when a card does not answer."""

import asyncio
import os
from pathlib import Path

import pytest

from railnet.daemon import pf_ports_for_status
from railnet.daemon.pf_ports_for_status import PfPortReads
from railnet.fabric.port_rate_and_partitions import PfPort
from railnet.kernel.inventory import inventory
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.kernel.waiting import until
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable
from tests.railnet.kernel.tree import OTHER_PF, PF, Tree

FIRST, SECOND = PciAddress.parse(PF), PciAddress.parse(OTHER_PF)


def add(root: Path, pf: str, file: str, text: str) -> Path:
    """Write a file of the port of a PF."""
    (ports,) = (root / "bus/pci/devices" / pf).glob("infiniband/*/ports/1")
    path = ports / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_card_that_hangs_costs_its_own_port_until_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pf_ports_for_status, "_SECONDS", 0.2)
    tree = Tree(tmp_path)
    tree.whole()
    tree.second_card()
    hung = add(tmp_path, PF, "rate", "400 Gb/sec (4X NDR)\n")
    add(tmp_path, OTHER_PF, "rate", "200 Gb/sec (4X HDR)\n")
    for index, text in enumerate(("0xffff\n", "0x8001\n", "0x0000\n")):
        add(tmp_path, OTHER_PF, f"pkeys/{index}", text)
    sysfs = Sysfs(tmp_path)
    reads = PfPortReads(VfTable(sysfs.inventory()), sysfs)
    hung.unlink()
    os.mkfifo(hung)

    async def ask_twice() -> None:
        assert await reads.ports() == {SECOND: PfPort("200", (0xFFFF, 0x8001))}
        with hung.open("w") as pipe:
            pipe.write("400 Gb/sec (4X NDR)\n")
        assert await reads.ports() == {FIRST: PfPort("400", ()), SECOND: PfPort("200", (0xFFFF, 0x8001))}

    asyncio.run(ask_twice())


def test_port_that_hangs_for_status_takes_no_vf_from_kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole P_Key table is 128 commands to the firmware; that it takes long says nothing of the VFs, which the inventory reads."""
    for name in ("_SECONDS", "_HANGS_SECONDS"):
        monkeypatch.setattr(pf_ports_for_status, name, 0.2)
    tree = Tree(tmp_path)
    tree.whole()
    hung = add(tmp_path, PF, "pkeys/0", "0xffff\n")
    hung.unlink()
    os.mkfifo(hung)
    sysfs = Sysfs(tmp_path)
    sysfs.reads = BoundedReads(0.2)
    table = VfTable(sysfs.inventory())
    reads = PfPortReads(table, sysfs)

    async def scenario() -> None:
        assert await reads.ports() == {}
        await until(lambda: reads.hung, 20, 0.01)
        assert (reads.hung, sysfs.reads.hung) == ({PF: 1}, {})
        now = await inventory(sysfs, table.inventory)
        assert now == table.inventory
        assert now.pfs[0].fault is None
        with hung.open("w") as pipe:
            pipe.write("0xffff\n")
        await until(lambda: not reads.hung, 20, 0.01)
        assert reads.hung == {}

    asyncio.run(scenario())


def test_all_who_ask_at_once_get_the_ports(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.whole()
    add(tmp_path, PF, "rate", "400 Gb/sec (4X NDR)\n")
    sysfs = Sysfs(tmp_path)
    reads = PfPortReads(VfTable(sysfs.inventory()), sysfs)

    async def ask_at_once() -> list[object]:
        return await asyncio.gather(*(reads.ports() for _ in range(3)))

    assert asyncio.run(ask_at_once()) == [{FIRST: PfPort("400", ())}] * 3


def test_node_without_a_card_has_no_ports(tmp_path: Path) -> None:
    Tree(tmp_path)
    sysfs = Sysfs(tmp_path)

    assert asyncio.run(PfPortReads(VfTable(sysfs.inventory()), sysfs).ports()) == {}
