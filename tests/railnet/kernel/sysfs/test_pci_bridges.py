"""Which bridges are read, from the tree of a card and a GPU behind one PCI switch."""

import asyncio
import os
from pathlib import Path

from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.sysfs.pci_bridges import PciBridge, read
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel import nodes
from tests.railnet.kernel.tree import Tree

CARD, GPU = PciAddress.parse("0000:03:00.0"), PciAddress.parse(nodes.BESIDE_CARD)
TO_CARD, TO_GPU = PciAddress.parse(nodes.TO_CARD), PciAddress.parse(nodes.TO_GPU)


def bridges(root: Path, *gpus: PciAddress) -> tuple[PciBridge, ...]:
    sysfs = Sysfs(root)
    sysfs.reads = BoundedReads(0.2)
    return asyncio.run(read(sysfs, [CARD], gpus))


def test_both_downstream_ports_are_read_and_no_bridge_above_them(tmp_path: Path) -> None:
    Tree(tmp_path).write(nodes.with_gpu(nodes.cx7(), 0x1D, None))

    assert bridges(tmp_path, GPU) == (
        PciBridge(TO_CARD, (CARD,), (GPU,), 0x1D),
        PciBridge(TO_GPU, (CARD,), (GPU,), 0),
    )
    assert bridges(tmp_path) == ()
    assert bridges(tmp_path, PciAddress.parse("0000:99:00.0")) == ()  # it has gone away


def test_bridge_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    Tree(tmp_path).write(nodes.with_gpu(nodes.cx7(), 0x1D, 0x1D))
    hung, cut = (tmp_path / "bus/pci/devices" / name / "config" for name in (nodes.TO_CARD, nodes.TO_GPU))
    hung.unlink()
    os.mkfifo(hung)
    cut.write_bytes(cut.read_bytes()[:64])

    found = bridges(tmp_path, GPU)
    os.close(os.open(hung, os.O_WRONLY))  # the thread ends

    assert [bridge.acs_control for bridge in found] == [None, None]
