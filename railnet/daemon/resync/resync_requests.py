"""Gathers what the resync reads next: the functions that uevents and other tasks name, or everything."""

import asyncio

from railnet.vf.changed_functions import EVERYTHING, MOST, ChangedFunction, ChangedFunctions, changed_functions
from railnet.vf.pci_address import PciAddress


class ResyncRequests:
    """Gathers what has changed until the resync takes it. One event loop owns it."""

    def __init__(self) -> None:
        self._named: set[ChangedFunction] = set()
        self._everything = False
        self._any = asyncio.Event()

    def everything(self) -> None:
        """Have everything read: it is not known what has changed."""
        self._everything = True
        self._any.set()

    def card(self, pf: PciAddress) -> None:
        """Have a PF read with its VFs."""
        self.name(ChangedFunction(pf, with_card=True))

    def name(self, changed: ChangedFunction | None) -> None:
        """Have one function read; None is everything, and so are very many."""
        if changed is None or len(self._named) > 2 * MOST:  # each function can be named in two ways
            self.everything()
            return
        self._named.add(changed)
        self._any.set()

    async def wait(self) -> None:
        """Wait until there is something to read."""
        await self._any.wait()

    def take(self) -> ChangedFunctions:
        """Return what there is to read, and forget it."""
        taken = EVERYTHING if self._everything else changed_functions(self._named)
        self._named, self._everything = set(), False
        self._any.clear()
        return taken
