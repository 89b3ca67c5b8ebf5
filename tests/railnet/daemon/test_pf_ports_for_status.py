"""The rates and partitions of PFs' ports for `railnet status`: in time, also when a card does not answer."""

import asyncio
import os
from pathlib import Path

import pytest

from railnet.daemon import pf_ports_for_status
from railnet.daemon.pf_ports_for_status import PfPortReads
from railnet.fabric.pf_port import PfPort
from railnet.kernel.sysfs.functions import Sysfs
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


def test_node_without_a_card_has_no_ports(tmp_path: Path) -> None:
    Tree(tmp_path)
    sysfs = Sysfs(tmp_path)

    assert asyncio.run(PfPortReads(VfTable(sysfs.inventory()), sysfs).ports()) == {}
