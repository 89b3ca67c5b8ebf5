"""Keep the memory of rails: read it at the start, and write what is new to the disk before any pod can have it.

`railnet.vf.rail_memory` decides what is remembered. With `rails` in node.yaml the configuration decides, and nothing is read or written.
A changed file takes effect when the daemon starts again; one that cannot be used is read again and again.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from errno import EFBIG, EINVAL
from pathlib import Path

from cni.attachment.journal import Journal
from cni.cancellation_shield import to_the_end
from railnet.configuration import Configuration
from railnet.kernel.files import below, open_below, sync, write_atomically
from railnet.vf import rail_memory, rail_number_address_check
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from railnet.vf.provision import Provision
from railnet.vf.rail_memory import Learned, RailMemory, RailNumbers, UnreadableRailMemory
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)


class ChangedMeanwhile(Exception):
    """The file is another than the one that the daemon read."""


class RailKeeper:
    """The memory of one node's rails; only this writes it."""

    def __init__(self, configuration: Configuration, table: VfTable, journal: Journal) -> None:
        """Number the rails of `table` by the memory on the host seen at `host.root`."""
        self._configuration, self._table, self._journal = configuration, table, journal
        self._file = RailFile(configuration.host.root)
        self._memory: RailMemory | None = None
        self._seen: Inventory | None = None
        self._settled = False
        self._said: frozenset[str] = frozenset()

    async def serve(self, look: asyncio.Event) -> None:
        """Look after each time that `look` is set, until cancelled."""
        while True:
            await look.wait()
            look.clear()
            await self.look()

    async def look(self) -> None:
        """Remember new cards, and number the rails; what refuses it becomes the rails' reason, not an exception."""
        inventory = self._table.inventory
        if self._configuration.rails is not None or (inventory is self._seen and self._settled):
            return
        # In a thread, since a disk may be slow; and after a cancellation nothing is written any more.
        numbers = await to_the_end(asyncio.to_thread(self._numbers, inventory, _recorded(self._journal, inventory)))
        unchanged = self._table.inventory is inventory  # else a card may have come meanwhile
        self._table.number(numbers)
        self._seen = self._table.inventory if unchanged else None
        self._settled = (numbers.unsettled, numbers.why_not_new) == (None, None)
        self._say(numbers.why_not_new)

    def reasons(self) -> list[str]:
        """Return what an administrator must do about the rails, for /readyz."""
        return list(rail_number_address_check.reasons(self._configuration.networks, self._table.inventory))

    def why_no_vf(self) -> str | None:
        """Return why no VF of this node can serve a pod; None if VFs can."""
        return rail_number_address_check.why_no_vf(self._configuration.networks, self._table.inventory)

    def _numbers(self, inventory: Inventory, recorded: Mapping[PciAddress, int]) -> RailNumbers:
        if self._memory is None:
            try:
                self._memory = self._file.read()
            except (OSError, UnreadableRailMemory) as error:
                return RailNumbers((), rail_memory.unreadable(error))
        learned = rail_memory.learn(
            self._memory,
            inventory.cards,
            expected=[entry.pf for entry in self._configuration.provision if isinstance(entry, Provision)],
            splits=rail_number_address_check.splits(self._configuration.networks),
            recorded=recorded,
        )
        return self._written(self._memory, learned)

    def _written(self, memory: RailMemory, learned: Learned) -> RailNumbers:
        """Write what was learned, and return the numbers that are on disk."""
        numbers = learned.numbers
        if numbers.memory == memory:
            return numbers
        try:
            self._file.write(numbers.memory)
        except (OSError, ChangedMeanwhile) as error:
            why = rail_memory.unwritable(error)
            return replace(numbers, memory=memory, why_not_new=why) if memory else RailNumbers((), why)
        self._memory = numbers.memory
        for news in learned.news:
            (_log.warning if memory else _log.info)("%s", news)
        return numbers

    def _say(self, why_not_new: str | None) -> None:
        """Log each reason once, when it begins."""
        inventory = self._table.inventory
        missing = (rail.reason for _, rail in inventory.all_rails())
        reasons = frozenset(filter(None, (why_not_new, inventory.selects_no_rail, *missing, *self.reasons())))
        for reason in sorted(reasons - self._said):
            _log.warning("%s", reason)
        self._said = reasons


class RailFile:
    """The file of the memory on the host that has its root folder at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._last: bytes | None = None

    def read(self) -> RailMemory:
        """Read the memory; () if there is no file.

        Raises:
            OSError: the file cannot be read, or is no file. UnreadableRailMemory: as `railnet.vf.rail_memory.parse`.
        """
        self._last = self._content()
        return () if self._last is None else rail_memory.parse(self._last)

    def write(self, memory: RailMemory) -> None:
        """Replace the memory; it survives a power cut once this has returned.

        Raises:
            OSError: the disk refuses. ChangedMeanwhile: another program has changed the file since it was read or written here.
        """
        if self._content() != self._last:
            raise ChangedMeanwhile("the file was changed, which takes effect when the daemon starts again")
        path = below(self._root, rail_memory.FILE)
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
            sync(path.parent.parent)
        content = rail_memory.encode(memory)
        write_atomically(path, content, durable=True)
        self._last = content

    def _content(self) -> bytes | None:
        try:
            # Another kind of file, such as a FIFO, must not hold this thread.
            fd = open_below(self._root, rail_memory.FILE, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(EINVAL, "it is no regular file", rail_memory.FILE)
            content = file.read(rail_memory.LARGEST_BYTES + 1)
        if len(content) > rail_memory.LARGEST_BYTES:
            raise OSError(EFBIG, f"it is longer than {rail_memory.LARGEST_BYTES} bytes", rail_memory.FILE)
        return content


def waking(look: asyncio.Event, changed: Callable[[], None]) -> Callable[[], None]:
    """Return a function that sets `look`, and calls `changed`."""

    def both() -> None:
        look.set()
        changed()

    return both


def _recorded(journal: Journal, inventory: Inventory) -> dict[PciAddress, int]:
    """Return the rail of each card of which a sandbox has a VF, by the sandbox's record; a rebuilt record only guesses it."""
    vfs = {vf.address: vf for vf in inventory.vfs()}
    recorded = {
        attachment.vf: attachment.rail
        for record in journal.records()
        if not record.rebuilt
        for attachment in record.attachments
    }
    return {vfs[vf].pf or vf: rail for vf, rail in recorded.items() if vf in vfs}
