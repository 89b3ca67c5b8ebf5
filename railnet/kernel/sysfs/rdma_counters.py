"""Reads the counters of one function's RDMA ports. Each file of `counters` may be a command to the card's firmware.

In the kernel's shared RDMA netns mode the device of a VF is in the host's sysfs while a pod has the VF.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress

from railnet.fabric.rdma_counter_deltas import of_port, parse_counter
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.pci_address import PciAddress


def read_counters(
    sysfs: Sysfs, function: PciAddress, device: str, ports: Iterable[int], names: Collection[str]
) -> dict[str, int]:
    """Read files below some ports of a function's RDMA device. A counter that the device lacks, or that is no number, is left out.

    Raises:
        OSError: the daemon or the node lacks descriptors or memory.
    """
    counters: dict[str, int] = {}
    with suppress(FileNotFoundError, NotADirectoryError), sysfs.folder(function) as folder:
        for key in [of_port(port, name) for port in ports for name in names]:
            text = folder.text(f"infiniband/{device}/{key}")
            if text is not None and (value := parse_counter(text)) is not None:
                counters[key] = value
    return counters
