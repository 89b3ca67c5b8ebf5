"""Reads the PCI bridges between cards and GPUs. A node without GPUs costs nothing."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from railnet.kernel.sysfs.acs_p2p_redirect import acs_control, bridges_between
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.pci_address import PciAddress

_CONFIGURATION_SPACE = (
    4096  # bytes; a reader without CAP_SYS_ADMIN gets 64 (pci_read_config(), drivers/pci/pci-sysfs.c)
)


@dataclass(frozen=True, slots=True)
class PciBridge:
    """A bridge on the short way between cards and GPUs. `acs_control` is None if it could not be read, and 0 without ACS."""

    address: PciAddress
    cards: tuple[PciAddress, ...]
    gpus: tuple[PciAddress, ...]
    acs_control: int | None


async def read(sysfs: Sysfs, cards: Sequence[PciAddress], gpus: Sequence[PciAddress]) -> tuple[PciBridge, ...]:
    """Read the bridges below the last one that a card and a GPU have in common, each with the time limit of `sysfs.reads`."""
    above = {function: _bridges_above(sysfs, function) for function in (*cards, *gpus)}
    bridges: dict[PciAddress, tuple[set[PciAddress], set[PciAddress]]] = {}
    for card in cards:
        for gpu in gpus:
            for bridge in bridges_between(above[card], above[gpu]):
                of_cards, of_gpus = bridges.setdefault(bridge, (set(), set()))
                of_cards.add(card)
                of_gpus.add(gpu)
    controls = await asyncio.gather(*(_control(sysfs, bridge) for bridge in bridges))
    return tuple(
        PciBridge(bridge, tuple(sorted(bridges[bridge][0])), tuple(sorted(bridges[bridge][1])), control)
        for bridge, control in sorted(zip(bridges, controls, strict=True))
    )


def _bridges_above(sysfs: Sysfs, function: PciAddress) -> tuple[PciAddress, ...]:
    """Return the bridges above a function from the root port down: the folders above its own. One that has gone away has none."""
    with suppress(OSError):
        return tuple(_addresses(Path(os.path.realpath(sysfs.path(function), strict=True)).parts[:-1]))
    return ()


def _addresses(names: Iterable[str]) -> Iterable[PciAddress]:
    for name in names:
        with suppress(ValueError):
            yield PciAddress.parse(name)


async def _control(sysfs: Sysfs, bridge: PciAddress) -> int | None:
    with suppress(OSError):
        return await sysfs.reads.read(bridge, bridge, partial(_read_control, f"{sysfs.path(bridge)}/config"))
    return None


def _read_control(path: str) -> int | None:
    with open(path, "rb", buffering=0) as file:
        return acs_control(file.read(_CONFIGURATION_SPACE) or b"")
