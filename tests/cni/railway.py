"""A node's sysfs tree, journal and one sandbox, with a kernel that only notes its steps: what rails need, and no more."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from cni import request as requests
from cni.journal import Journal
from cni.rails import Host, Network, Rails
from kernel.sysfs import Sysfs
from tests.cni.executable import CONF, ENVIRON
from tests.kernel.tree import AT_HOME, UNBOUND, Tree, netdev
from vf.address import PciAddress
from vf.record import Record
from vf.table import VfTable

Result = TypeVar("Result")
VF, NO_DRIVER = PciAddress.parse(AT_HOME), PciAddress.parse(UNBOUND)
KEY, NETNS = "c0ffee@eth0", "run/netns/cni-1"
PRIMARY = {"conf": {"name": "n"}, "runtimeConfig": {}}


class Kernel:
    """Notes the steps it is asked for; `refuses` is raised instead, `then` is called after."""

    def __init__(self) -> None:
        self.steps: list[object] = []
        self.refuses: Exception | None = None
        self.then: Callable[[], None] = lambda: None

    def attach(self, steps: Iterable[object], netns_fd: int) -> None:
        self._do(steps)

    def detach(self, steps: Iterable[object], netns_fd: int | None) -> None:
        self._do(steps)

    def _do(self, steps: Iterable[object]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.steps += steps
        self.then()


class NoAddresses:
    """Gives every VF no address at all."""

    def give(self, assigned: Iterable[object], *_: object) -> dict[PciAddress, tuple[()]]:
        return {one.vf.address: () for one in assigned}


class Node:
    """A sysfs tree, a journal, and a sandbox whose namespace is a file of the test's."""

    def __init__(self, folder: Path, kernel: Kernel) -> None:
        self.kernel = kernel
        self.tree = Tree(folder / "sys")
        self.tree.whole()
        for device in self.tree.root.glob("devices/**/infiniband/*"):
            for name, text in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("link_layer", "InfiniBand")):
                (device / "ports" / "1").mkdir(parents=True, exist_ok=True)
                (device / "ports" / "1" / name).write_text(f"{text}\n")
        self.netns = folder / NETNS
        self.netns.parent.mkdir(parents=True)
        self.netns.touch()
        self.journal = Journal(folder / "journal", folder / "quarantine")
        self.sysfs = Sysfs(self.tree.root)
        self.table = VfTable(self.sysfs.inventory())
        self.mtu: int | str = "pf"
        self._folder = folder

    def rails(self) -> Rails:
        """Build rails, as a daemon that starts does."""
        return Rails(
            self.table, self.journal, self.sysfs, Network(self.mtu, NoAddresses(), 0.1), Host(self._folder, 0.1)
        )

    def run(self, main: Callable[[Rails, int], Awaitable[Result]]) -> Result:
        """Run with rails and the sandbox's descriptor."""

        async def whole() -> Result:
            netns_fd = os.open(self._folder / NETNS, os.O_RDONLY)
            try:
                return await asyncio.wait_for(main(self.rails(), netns_fd), 20)
            finally:
                os.close(netns_fd)

        return asyncio.run(whole())

    def netdev_is(self, name: str | None) -> None:
        """Show the VF's netdev under a name, or not at all."""
        shutil.rmtree(self.tree.devices / AT_HOME / "net", ignore_errors=True)
        for path, text in netdev(name, 31).items() if name else ():
            (self.tree.devices / AT_HOME / path).parent.mkdir(parents=True, exist_ok=True)
            (self.tree.devices / AT_HOME / path).write_text(text)

    @property
    def state(self) -> tuple[str | None, bool]:
        """Give the record's stage and whether the VF has an owner."""
        record = self.journal.get(KEY)
        return None if record is None else record.stage, self.table.owner(VF) is not None


async def planned(rails: Rails, netns_fd: int | None, *vfs: PciAddress) -> Record:
    return await rails.plan(requests.parse(ENVIRON, CONF, netns_fd), vfs or (VF,), PRIMARY)


async def attached(rails: Rails, netns_fd: int) -> Record:
    record = await planned(rails, netns_fd)
    await rails.attach(record, netns_fd)
    rails.confirm(record)
    return record
