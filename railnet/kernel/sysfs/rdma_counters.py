"""Reads the counters of one function's RDMA port. Each file of `counters` may be a command to the card's firmware.

In the kernel's shared RDMA netns mode the device of a VF is in the host's sysfs while a pod has the VF.
"""

from collections.abc import Iterable
from contextlib import suppress

from railnet.fabric.rdma_counter_deltas import parse_counter
from railnet.kernel.sysfs.functions import Sysfs, first_data_port
from railnet.vf.pci_address import PciAddress


def read_counters(sysfs: Sysfs, function: PciAddress, device: str, names: Iterable[str]) -> dict[str, int]:
    """Read files below the first data port of a function's RDMA device. A counter that the device lacks, or that is no number, is left out.

    Raises:
        OSError: the daemon or the node lacks descriptors or memory.
    """
    counters: dict[str, int] = {}
    with suppress(FileNotFoundError, NotADirectoryError), sysfs.folder(function) as folder:
        port = first_data_port(folder, device)
        for name in names:
            text = folder.text(f"{port}/{name}")
            if text is not None and (value := parse_counter(text)) is not None:
                counters[name] = value
    return counters
