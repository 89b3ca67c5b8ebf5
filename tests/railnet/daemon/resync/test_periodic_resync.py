"""What the resync reads after uevents, when a sweep follows, and what it keeps that was read meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from railnet.daemon.resync import periodic_resync
from railnet.daemon.resync.resync_requests import ResyncRequests
from railnet.kernel.inventory import Reread
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.changed_functions import EVERYTHING, MOST, ChangedFunction, ChangedFunctions
from railnet.vf.inventory import Inventory, Netdev, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner, VfTable
from tests.deviceplugin.builders import two_rails
from tests.railnet.vf.builders import FIRST, SECOND
from tests.waiting import until_async

SECONDS = 20.0
OWNER = Owner("c0ffee", "eth0", "uid-1")
PF = two_rails().pfs[0].address


class Node:
    """A node whose functions are read as `facts` has them; `read` has what was asked for, `calls` what followed."""

    def __init__(self) -> None:
        self.table = VfTable(two_rails())
        self.facts = two_rails()
        self.requests = ResyncRequests()
        self.read: list[ChangedFunctions] = []
        self.calls: list[str] = []
        self.error: OSError | None = None
        self.sweep_error: OSError | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def vf(self, address: PciAddress = FIRST) -> VirtualFunction:
        found = self.facts.vf(address)
        assert found is not None
        return found

    def set(self, newer: VirtualFunction) -> None:
        self.facts = self.facts.with_vfs({newer.address: newer})

    async def inventory(self, _: Sysfs, __: Inventory) -> Inventory:
        self._note(EVERYTHING)
        return self.facts

    async def reread(self, _: Sysfs, __: Inventory, changed: ChangedFunctions) -> Reread:
        self._note(changed)
        found = {one: self.vf(one) for one in changed.functions if self.facts.vf(one) is not None}
        self.meanwhile()
        return Reread(frozenset(), Inventory(), found)

    def _note(self, changed: ChangedFunctions) -> None:
        self.read.append(changed)
        if self.error is not None:
            raise self.error

    async def sweep(self) -> None:
        self.calls.append("sweep")
        if self.sweep_error is not None:
            raise self.sweep_error

    async def find_orphans(self) -> None:
        self.calls.append("find orphans")

    def tell(self) -> None:
        self.calls.append("tell")

    def look(self, *named: ChangedFunction | None) -> list[str]:
        """Have these functions named, and one look; return what followed."""
        for one in named:
            self.requests.name(one)
        self.run(lambda looked: until_async(looked.is_set, SECONDS, "the look"))
        return self.calls

    def run(self, until: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        async def main() -> None:
            looked = asyncio.Event()
            task = asyncio.create_task(
                periodic_resync.resyncing(self.table, self, Sysfs(Path("/sys")), self.tell, self.requests, looked)  # type: ignore[arg-type]
            )
            await until(looked)
            task.cancel()
            await asyncio.wait([task])

        asyncio.run(main())


@contextmanager
def no_uevents(_: object) -> Iterator[None]:
    yield


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Node:
    node = Node()
    monkeypatch.setattr(periodic_resync, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(periodic_resync.lock, "FOLDER", str(tmp_path))
    monkeypatch.setattr(periodic_resync, "inventory", node.inventory)
    monkeypatch.setattr(periodic_resync, "reread", node.reread)
    monkeypatch.setattr(periodic_resync.uevents, "changes", no_uevents)
    return node


def changed(function: PciAddress, *, with_card: bool = False) -> ChangedFunction:
    return ChangedFunction(function, with_card=with_card)


ALL = ["sweep", "find orphans", "tell"]


@dataclass(frozen=True)
class Case:
    """A VF after a uevent: whether a sandbox owns it, and its netdev on the node; and what follows the look."""

    owned: bool
    netdev: Netdev | None
    follows: list[str]


HERE = two_rails().pfs[0].vfs[0].netdev


@pytest.mark.parametrize(
    "case",
    [
        Case(owned=True, netdev=None, follows=["tell"]),
        Case(owned=False, netdev=HERE, follows=[]),
        Case(owned=True, netdev=HERE, follows=ALL),
        Case(owned=False, netdev=None, follows=ALL),
        Case(owned=False, netdev=Netdev("net1", 9, 4092), follows=ALL),
    ],
    ids=["after an ADD", "after a DEL", "its sandbox has ended", "a program took it", "it came back with a pod's name"],
)
def test_sweep_follows_where_a_vf_is_not_where_the_table_expects_it(node: Node, case: Case) -> None:
    if case.owned:
        node.table.claim(FIRST, OWNER)
    node.set(replace(node.vf(), netdev=case.netdev))

    follows = node.look(changed(FIRST))

    assert follows == case.follows
    assert node.read == [ChangedFunctions(frozenset({FIRST}))]
    assert node.table.inventory.vf(FIRST) == node.vf()


def test_vf_that_was_withheld_and_has_its_netdev_again_is_offered_after_one_look(node: Node) -> None:
    """A program took the netdev and has brought it back under its own name: only a sweep takes the reason away."""
    node.table.withhold({FIRST: "its netdev is not on the node"})

    assert node.look(changed(FIRST)) == ALL


def test_vf_with_a_fault_and_functions_that_came_or_went_are_followed_by_a_sweep(node: Node) -> None:
    node.set(replace(node.vf(), fault="no answer"))

    assert node.look(changed(FIRST)) == ALL
    assert node.look(changed(SECOND, with_card=True)) == 2 * ALL
    assert node.look(changed(PF)) == 3 * ALL


def test_function_of_no_card_is_followed_by_nothing(node: Node) -> None:
    assert node.look(changed(PciAddress.parse("0000:00:03.0"))) == []


def test_swarm_is_one_look(node: Node) -> None:
    node.look(*[changed(FIRST), changed(SECOND)] * 1000)

    assert node.read == [ChangedFunctions(frozenset({FIRST, SECOND}))]


@pytest.mark.parametrize("lost", [True, False], ids=["uevents were lost", "too many functions"])
def test_everything_is_read_after_lost_uevents_and_very_many(node: Node, lost: bool) -> None:
    many = [changed(PciAddress(7, number >> 3, 0, number & 7)) for number in range(3 * MOST)]

    follows = node.look(changed(FIRST), *([None] if lost else many))

    assert (node.read, follows) == ([EVERYTHING], ALL)


def test_named_functions_do_not_put_off_the_look_at_everything(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic_resync, "_RESYNC_SECONDS", 0.05)

    async def until(_: asyncio.Event) -> None:
        def named_again() -> bool:
            node.requests.name(changed(FIRST))
            return EVERYTHING in node.read

        await until_async(named_again, SECONDS, "the look at everything")

    node.run(until)

    assert ChangedFunctions(frozenset({FIRST})) in node.read


def test_functions_that_could_not_be_read_are_not_forgotten(node: Node) -> None:
    node.error = OSError(24, "too many open files")

    follows = node.look(changed(FIRST))

    assert follows == ALL
    assert node.requests.take() == EVERYTHING


def test_everything_is_read_after_a_sweep_that_failed(node: Node) -> None:
    """No uevent is heard until the resync begins anew, and its ten seconds begin anew, too: on a busy node with a sweep that fails
    again and again everything would never be read."""
    node.sweep_error = OSError(5, "input/output error")
    node.set(replace(node.vf(), netdev=None))

    assert node.look(changed(FIRST)) == ALL
    assert node.requests.take() == EVERYTHING


def test_vf_that_an_add_has_read_meanwhile_keeps_its_newer_facts(node: Node) -> None:
    """The look has read the netdev on the node; then an ADD moves it, and reads the VF again."""
    moved = replace(node.vf(), netdev=None)

    def attach() -> None:
        node.table.claim(FIRST, OWNER)
        node.table.reread({FIRST: moved})

    node.meanwhile = attach

    follows = node.look(changed(FIRST), changed(SECOND))

    assert node.table.inventory.vf(FIRST) == moved
    assert "sweep" not in follows


def test_function_that_another_look_has_found_meanwhile_stays(node: Node) -> None:
    """A look at few functions knows nothing of the others, also not of those that came while it went on."""
    both = two_rails()
    node.table.refresh(replace(both, pfs=both.pfs[:1]))
    node.meanwhile = lambda: node.table.refresh(both)

    node.look(changed(FIRST))

    assert node.table.inventory == both
