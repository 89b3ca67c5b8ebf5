"""What uevents name is read again, and no other function; the result is as if everything had been read."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railnet.kernel import inventory as module
from railnet.kernel.inventory import inventory, reread
from railnet.kernel.netlink import pf_link_query
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.vf.changed_functions import ChangedFunction, changed_functions
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel import nodes
from tests.railnet.kernel.nodes import plus, without
from tests.railnet.kernel.tree import Function, Tree, netdev

CARDS = (
    nodes.cx7("0000:03:00.0", 4),
    nodes.cx7("0000:13:00.0", 2),
    nodes.ETHERNET_ONLY[1:3],
    *((one,) for one in nodes.AZURE),
    (nodes.EIGHT_RAILS_AND_GPUS[2],),  # a GPU
    (nodes.ETHERNET_ONLY[3],),  # a virtual machine's NIC
)
ALL = {function.address: function for card in CARDS for function in card}


class Machine:
    """Functions that come, go and change in a tree of files; `named` has what the kernel's uevents name."""

    def __init__(self, root: Path) -> None:
        self._tree = Tree(root)
        self.functions: dict[str, Function] = {}
        self.named: set[ChangedFunction] = set()

    def come(self, card: Iterable[Function]) -> None:
        for function in card:
            if function.address not in self.functions:
                self._put(function)
                self._name(function.address, with_card=True)

    def go(self, card: Iterable[Function]) -> None:
        for function in reversed(tuple(card)):  # the VFs first
            if function.address in self.functions:
                self._take(function.address)
                self._name(function.address, with_card=True)

    def lose_vf(self, vf: str) -> None:
        """Have a PF with one VF less, as when its number is changed. No uevent names the PF."""
        pf = self.functions[self.functions[vf].links["physfn"]]
        self.go([self.functions[vf]])
        self._put_with_vfs(pf, {name: address for name, address in pf.links.items() if address != vf})

    def regain_vf(self, vf: str) -> None:
        """Have a PF with that VF again."""
        pf = self.functions[ALL[vf].links["physfn"]]
        self.come([ALL[vf]])
        (name,) = (name for name, address in ALL[pf.address].links.items() if address == vf)
        self._put_with_vfs(pf, {**pf.links, name: vf})

    def vfs_of_present_pfs(self, *, present: bool) -> list[str]:
        """Return the VFs of PFs that are on the node, which are there themselves, or are not."""
        vfs = (one for one in ALL.values() if one.links.get("physfn") in self.functions)
        return sorted(one.address for one in vfs if (one.address in self.functions) is present)

    def _put_with_vfs(self, pf: Function, links: dict[str, str]) -> None:
        self._put(pf._replace(links=links, files={**pf.files, "sriov_numvfs": f"{len(links)}\n"}))

    def change(self, function: Function) -> None:
        self._put(function)
        self._name(function.address, with_card=False)

    def _name(self, address: str, *, with_card: bool) -> None:
        self.named.add(ChangedFunction(PciAddress.parse(address), with_card))

    def _put(self, function: Function) -> None:
        if function.address in self.functions:
            self._take(function.address)
        shutil.rmtree(self._tree.root / "class", ignore_errors=True)  # no inventory reads it
        self._tree.write([function])
        self.functions[function.address] = function

    def _take(self, address: str) -> None:
        link = self._tree.devices / address
        shutil.rmtree(link.resolve())
        link.unlink()
        del self.functions[address]


def changed(function: Function, how: str) -> Function:
    original = ALL[function.address]
    match how:
        case "netdev goes to a pod":
            return without(function, "net/")
        case "netdev comes back under another name":
            return plus(without(function, "net/"), netdev("net1", 77))
        case "RDMA device goes":
            return without(function, "infiniband")
        case "driver goes":
            return without(function, "net/", "infiniband")._replace(driver=None)
        case "a value is bad":
            return plus(function, netdev("ib9", 9) | {"net/ib9/mtu": "much\n"})
        case "as at first":
            return original._replace(links=function.links, files={**original.files, **_numvfs(function)})
    raise AssertionError(how)


def _numvfs(function: Function) -> dict[str, str]:
    return {name: text for name, text in function.files.items() if name == "sriov_numvfs"}


HOW = [
    "netdev goes to a pod",
    "netdev comes back under another name",
    "RDMA device goes",
    "driver goes",
    "a value is bad",
    "as at first",
]


@pytest.fixture(autouse=True, scope="module")
def no_links() -> Iterable[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pf_link_query, "read", lambda _: {})
        yield


def again(sysfs: Sysfs, before: Inventory, named: Iterable[ChangedFunction]) -> Inventory:
    async def main() -> Inventory:
        return (await reread(sysfs, before, changed_functions(set(named)))).merged_into(before)

    return asyncio.run(main())


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_what_is_named_is_enough_for_the_whole(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        machine, sysfs = Machine(root), Sysfs(root)
        for card in data.draw(st.lists(st.sampled_from(CARDS), min_size=1, unique_by=lambda one: one[0].address)):
            machine.come(card)
        before = asyncio.run(inventory(sysfs, Inventory()))
        for _ in range(data.draw(st.integers(1, 4))):
            machine.named.clear()
            for _ in range(data.draw(st.integers(0, 4))):
                _step(machine, data)
            before = again(sysfs, before, machine.named)

            assert before == asyncio.run(inventory(sysfs, before))


def _step(machine: Machine, data: st.DataObject) -> None:
    possible: dict[str, Sequence[Any]] = {
        "change": sorted(machine.functions),
        "lose a VF": machine.vfs_of_present_pfs(present=True),
        "regain a VF": machine.vfs_of_present_pfs(present=False),
        "come": [card for card in CARDS if card[0].address not in machine.functions],
        "go": [card for card in CARDS if card[0].address in machine.functions],
    }
    what = data.draw(st.sampled_from([what for what, subjects in possible.items() if subjects]))
    subject = data.draw(st.sampled_from(possible[what]))
    match what:
        case "change":
            machine.change(changed(machine.functions[subject], data.draw(st.sampled_from(HOW))))
        case "lose a VF":
            machine.lose_vf(subject)
        case "regain a VF":
            machine.regain_vf(subject)
        case "come":
            machine.come(subject)
        case "go":
            machine.go(subject)


def opened(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch) -> list[PciAddress]:
    """Return a list to which the functions are added whose folders this `Sysfs` opens; a thread of an earlier test has another one."""
    found: list[PciAddress] = []
    real = sysfs.folder

    def folder(function: PciAddress) -> Any:
        found.append(function)
        return real(function)

    monkeypatch.setattr(sysfs, "folder", folder)
    return found


PF, VF = PciAddress.parse("0000:03:00.0"), PciAddress.parse("0000:03:00.2")


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    machine = Machine(tmp_path)
    machine.come(CARDS[0])
    machine.come(CARDS[1])
    return Sysfs(tmp_path)


def test_vf_whose_netdev_was_moved_is_read_alone(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sysfs.inventory()
    found = opened(sysfs, monkeypatch)

    again(sysfs, before, [ChangedFunction(VF, with_card=False)])

    assert found == [VF]


@pytest.mark.parametrize(
    "named", [ChangedFunction(PF, with_card=False), ChangedFunction(VF, with_card=True)], ids=["a PF", "a VF that went"]
)
def test_card_is_read_and_no_other(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch, named: ChangedFunction) -> None:
    before = sysfs.inventory()
    card = {function.address for function in (before.pfs[0], *before.pfs[0].vfs)}
    found = opened(sysfs, monkeypatch)

    again(sysfs, before, [named])

    assert set(found) == card


def test_vf_that_comes_and_goes_is_found_although_its_pf_is_not_named(tmp_path: Path) -> None:
    machine, sysfs = Machine(tmp_path), Sysfs(tmp_path)
    machine.come(CARDS[0])
    whole = sysfs.inventory()

    for change in (machine.lose_vf, machine.regain_vf):
        before = sysfs.inventory()
        machine.named.clear()
        change(str(VF))

        assert {one.address for one in machine.named} == {VF}
        assert again(sysfs, before, machine.named) == sysfs.inventory() != before
    assert sysfs.inventory() == whole


@pytest.mark.slow
def test_vf_that_does_not_answer_has_a_fault_and_the_next_is_read(sysfs: Sysfs, tmp_path: Path) -> None:
    before = sysfs.inventory()
    hung, other = before.pfs[0].vfs[0], before.pfs[0].vfs[1]
    sysfs.reads = BoundedReads(0.1)
    shutil.rmtree(tmp_path / f"bus/pci/devices/{other.address}/net")
    pipe = tmp_path / f"bus/pci/devices/{hung.address}/net/ibv1/ifindex"
    pipe.unlink()
    os.mkfifo(pipe)  # to open it waits for a writer

    found = again(sysfs, before, [ChangedFunction(one.address, with_card=False) for one in (hung, other)])

    pipe.open("w").close()  # the thread ends
    silent, well = found.vf(hung.address), found.vf(other.address)
    assert silent is not None
    assert "have not answered" in (silent.fault or "")
    assert silent.netdev == hung.netdev
    assert well is not None
    assert (well.fault, well.netdev) == (None, None)


def test_new_function_that_does_not_answer_costs_no_other(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known whether it is a VF, and of which PF."""
    before, new = sysfs.inventory(), PciAddress.parse("0000:23:00.0")

    def pf_of(_: PciAddress) -> PciAddress:
        raise module.DoesNotAnswer("it hangs")

    monkeypatch.setattr(sysfs, "pf_of", pf_of)

    assert again(sysfs, before, [ChangedFunction(one, with_card=True) for one in (new, PF)]) == before


def test_daemon_without_descriptors_is_no_fault_of_a_function(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    def pf_of(_: PciAddress) -> PciAddress:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(sysfs, "pf_of", pf_of)

    with pytest.raises(OSError, match="too many open files"):
        again(sysfs, sysfs.inventory(), [ChangedFunction(PciAddress(9, 0, 0, 0), with_card=True)])
