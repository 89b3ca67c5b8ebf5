"""The functions of a node that have changed since they were read. Pure; `railnet.kernel.inventory` reads them."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from railnet.vf.pci_address import PciAddress

# A set that grows has an end: to read so many VFs one by one costs a fifth of reading a node with 1,016 VFs (scripts/bench inventory).
MOST = 256


class ChangedFunction(NamedTuple):
    """One function that has changed; `with_card` if it may have come or gone, so that its PF may have other VFs."""

    address: PciAddress
    with_card: bool


@dataclass(frozen=True, slots=True)
class ChangedFunctions:
    """The functions that have changed; `cards` are those that may have come or gone. None is named if `everything` may have changed."""

    functions: frozenset[PciAddress] = frozenset()
    cards: frozenset[PciAddress] = frozenset()
    everything: bool = False


EVERYTHING = ChangedFunctions(everything=True)


def changed_functions(named: Collection[ChangedFunction]) -> ChangedFunctions:
    """Return what was named, each function once; more than `MOST` functions are everything."""
    cards = frozenset(function.address for function in named if function.with_card)
    functions = frozenset(function.address for function in named) - cards
    return EVERYTHING if len(functions) + len(cards) > MOST else ChangedFunctions(functions, cards)
