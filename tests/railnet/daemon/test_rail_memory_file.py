"""The keeper of the rails' memory, on a folder in place of the host's root."""

import asyncio
import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from cni.attachment.journal import Journal
from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon import rail_memory_file
from railnet.daemon.rail_memory_file import ChangedMeanwhile, RailFile, RailKeeper
from railnet.vf.guid import Guid
from railnet.vf.inventory import Inventory
from railnet.vf.permitted_networks import Network, Networks, SliceIpam
from railnet.vf.pf_selector import PfSelector
from railnet.vf.rail_memory import FILE, RememberedRail, UnreadableRailMemory, encode
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import a_pf, a_vf, an_rdma_device, two_rails
from tests.railnet.vf.builders import a_record, an_attachment

BOTH = Inventory(
    tuple(
        replace(pf, rdma=an_rdma_device(number, node_guid=Guid(number + 1)))
        for number, pf in enumerate(two_rails().pfs)
    )
)
SECOND = replace(BOTH, pfs=BOTH.pfs[1:])


class Keeper:
    """A keeper that starts with `inventory`; a second one on the same root is the next start of the daemon."""

    def __init__(self, root: Path, inventory: Inventory, **configured: object) -> None:
        self.table = VfTable(inventory)
        self.journal = Journal(root / "journal", root / "quarantine")
        configuration = Configuration(host=HostConfiguration(root=root), **configured)  # type: ignore[arg-type]
        self.keeper = RailKeeper(configuration, self.table, self.journal)
        self.look()

    def look(self, inventory: Inventory | None = None) -> None:
        if inventory is not None:
            self.table.refresh(inventory)
        asyncio.run(self.keeper.look())

    @property
    def rails(self) -> list[str]:
        return [str(rail.address) for rail in self.table.inventory.rails]

    @property
    def usable(self) -> list[bool]:
        return [rail.reason is None for rail in self.table.inventory.rails]


def a_memory(root: Path) -> Path:
    path = root / FILE.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_first_start_writes_what_is_present_and_the_next_start_reads_it(tmp_path: Path) -> None:
    Keeper(tmp_path, BOTH)

    after = Keeper(tmp_path, SECOND)

    assert after.rails == ["0000:03:00.0", "0000:83:00.0"]
    assert after.usable == [False, True]
    assert a_memory(tmp_path).stat().st_mode & 0o777 == 0o600
    assert a_memory(tmp_path).parent.stat().st_mode & 0o777 == 0o700


def test_memory_is_on_disk_before_a_card_has_its_rail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, list[str]]] = []
    real = rail_memory_file.write_atomically

    def write(path: Path, content: bytes, **options: bool) -> None:
        synced.append((options["durable"], [rail.reason or "" for _, rail in keeper.table.inventory.all_rails()]))
        real(path, content, **options)

    keeper = Keeper(tmp_path, SECOND)
    monkeypatch.setattr(rail_memory_file, "write_atomically", write)
    keeper.look(BOTH)

    ((durable, (second, first)),) = synced
    assert (durable, second) == (True, "")
    assert first == f"card 0000:03:00.0 has no rail yet: its rail is being written to {FILE}"
    assert keeper.rails == ["0000:83:00.0", "0000:03:00.0"]
    assert keeper.usable == [True, True]


def test_named_rails_are_neither_read_nor_written(tmp_path: Path) -> None:
    named = (BOTH.pfs[1].address, BOTH.pfs[0].address)

    keeper = Keeper(tmp_path, replace(BOTH, named_rails=named), rails=named)

    assert keeper.rails == ["0000:83:00.0", "0000:03:00.0"]
    assert not a_memory(tmp_path).exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 9, "rails": []}'], ids=["empty", "cut off", "newer"])
def test_garbled_memory_settles_no_rail_and_is_read_again(tmp_path: Path, content: bytes) -> None:
    a_memory(tmp_path).write_bytes(content)
    keeper = Keeper(tmp_path, SECOND)
    reasons, why = keeper.keeper.reasons(), keeper.keeper.why_no_vf()
    left = a_memory(tmp_path).read_bytes()

    a_memory(tmp_path).write_bytes(encode(tuple(RememberedRail(pf.address) for pf in BOTH.pfs)))
    keeper.look()

    assert left == content
    assert why is not None
    assert f"{FILE}, which says which card is which rail, cannot be used" in why
    assert [why in reason for reason in reasons] == [True]
    assert (keeper.rails, keeper.keeper.reasons()) == (["0000:03:00.0", "0000:83:00.0"], [])


@pytest.mark.parametrize("kind", ["folder", "FIFO", "large"])
def test_what_is_no_file_is_no_memory_and_holds_nothing(tmp_path: Path, kind: str) -> None:
    path = a_memory(tmp_path)
    {"folder": path.mkdir, "FIFO": lambda: os.mkfifo(path), "large": lambda: path.write_bytes(bytes(100_000))}[kind]()

    keeper = Keeper(tmp_path, BOTH)

    assert [FILE in reason for reason in keeper.keeper.reasons()] == [True]


def test_write_that_is_refused_is_tried_again_and_costs_only_the_new_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path, SECOND)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(rail_memory_file, "write_atomically", refuse)
        keeper.look(BOTH)
        reasons = keeper.keeper.reasons()
        rails = keeper.rails
    keeper.look()  # the inventory is the same

    assert rails == ["0000:83:00.0"]
    (reason,) = reasons
    assert "card 0000:03:00.0 has no rail yet: which card is which rail cannot be written" in reason
    assert "No space left on device" in reason
    assert (keeper.rails, keeper.keeper.reasons()) == (["0000:83:00.0", "0000:03:00.0"], [])


def test_changed_file_is_not_overwritten(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, SECOND)
    edited = encode((RememberedRail(BOTH.pfs[0].address),))
    a_memory(tmp_path).write_bytes(edited)

    keeper.look(BOTH)

    assert a_memory(tmp_path).read_bytes() == edited
    (reason,) = keeper.keeper.reasons()
    assert "takes effect when the daemon starts again" in reason
    with pytest.raises(ChangedMeanwhile):
        RailFile(tmp_path).write(())


def test_replaced_card_is_named_in_the_log_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Keeper(tmp_path, BOTH)
    other = replace(BOTH, pfs=(replace(BOTH.pfs[0], rdma=an_rdma_device(0, node_guid=Guid(9))), BOTH.pfs[1]))

    with caplog.at_level(logging.WARNING):
        Keeper(tmp_path, other).look()
        Keeper(tmp_path, other).look()

    assert caplog.text.count("was replaced") == 1
    assert json.loads(a_memory(tmp_path).read_text())["rails"][0]["guid"] == "0000:0000:0000:0009"


def test_missing_card_is_named_in_the_log_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(tmp_path, BOTH)

    with caplog.at_level(logging.WARNING):
        keeper.look(SECOND)
        keeper.look(replace(SECOND, pfs=(replace(SECOND.pfs[0], carrier=True),)))

    assert caplog.text.count("rail 0 has no card") == 1


def test_first_start_beside_pods_with_other_rails_settles_nothing_until_they_end(tmp_path: Path) -> None:
    """An upgrade while a card is missing: the records of running pods know the rail that the second card had."""
    record = replace(
        a_record(an_attachment(vf=SECOND.pfs[0].vfs[0].address, rail=1)), primary={"name": "cbr0", "plugins": []}
    )
    Journal(tmp_path / "journal", tmp_path / "quarantine").write(record)

    keeper = Keeper(tmp_path, SECOND)
    (reason,) = keeper.keeper.reasons()
    written = a_memory(tmp_path).exists()
    keeper.journal.remove(record)
    keeper.look()

    assert "running pods have card 0000:83:00.0 as rail 1" in reason
    assert not written
    assert (keeper.rails, keeper.keeper.reasons()) == (["0000:83:00.0"], [])


def test_first_start_with_fewer_cards_than_ipam_rails_remembers_nothing(tmp_path: Path) -> None:
    networks = Networks({"default": Network(ipam=SliceIpam(rails=2))})

    keeper = Keeper(tmp_path, SECOND, networks=networks)
    (reason,) = keeper.keeper.reasons()
    written = a_memory(tmp_path).exists()
    keeper.look(BOTH)

    assert "ipam.rails is 2, but this node has 1 rail (0000:83:00.0): repair a missing card" in reason
    assert not written
    assert (keeper.rails, keeper.keeper.reasons()) == (["0000:03:00.0", "0000:83:00.0"], [])


def test_file_of_another_version_is_no_memory(tmp_path: Path) -> None:
    a_memory(tmp_path).write_text('{"version": 2}')

    with pytest.raises(UnreadableRailMemory):
        RailFile(tmp_path).read()


def test_card_that_loses_its_rdma_device_keeps_its_rail(tmp_path: Path) -> None:
    """Its link layer is then the one of its PCI class, which is Ethernet for some cards."""
    first = replace(BOTH.pfs[0], class_code=0x020000)
    keeper = Keeper(tmp_path, replace(BOTH, pfs=(first, BOTH.pfs[1]), rail_link_layers=frozenset({"InfiniBand"})))
    before = keeper.rails

    keeper.look(replace(keeper.table.inventory, pfs=(replace(first, rdma=None), BOTH.pfs[1])))

    assert keeper.rails == before == ["0000:03:00.0", "0000:83:00.0"]
    assert [rail.pf is not None for rail in keeper.table.inventory.rails] == [True, True]


def test_card_that_the_selector_matches_keeps_its_number_while_it_is_missing(tmp_path: Path) -> None:
    by_model = replace(BOTH, rail_select=PfSelector(pf_device=("1021",)))
    other_model = a_pf(address="0000:01:00.0", device="0x1017", rdma=an_rdma_device(9))

    before = Keeper(tmp_path, replace(by_model, pfs=(other_model, *BOTH.pfs)))
    after = Keeper(tmp_path, replace(by_model, pfs=(other_model, BOTH.pfs[1])))

    assert before.rails == after.rails == ["0000:03:00.0", "0000:83:00.0"]
    assert after.usable == [False, True]


def test_selector_that_matches_no_card_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        keeper = Keeper(tmp_path, replace(BOTH, rail_select=PfSelector(pf_device=("1099",))))
        keeper.look(replace(BOTH, rail_select=PfSelector(pf_device=("1099",))))

    assert keeper.rails == []
    assert [one for one in caplog.messages if "`rails.select` in node.yaml matches no PF" in one] == caplog.messages
    assert len(caplog.messages) == 1


def test_vf_without_a_pf_is_remembered(tmp_path: Path) -> None:
    lone = a_vf("0000:00:08.0", pf=None)
    node = Inventory((a_pf(address="0000:83:00.0", rdma=an_rdma_device(7)),), (lone,))
    Keeper(tmp_path, node)

    after = Keeper(tmp_path, replace(node, lone_vfs=()))

    assert after.rails == ["0000:00:08.0", "0000:83:00.0"]


def test_card_that_comes_while_the_memory_is_written_is_remembered_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path, Inventory())
    real = rail_memory_file.write_atomically

    def write(path: Path, content: bytes, **options: bool) -> None:
        real(path, content, **options)
        keeper.table.refresh(BOTH)

    with monkeypatch.context() as slow:
        slow.setattr(rail_memory_file, "write_atomically", write)
        keeper.look(SECOND)
    keeper.look()

    assert keeper.rails == ["0000:83:00.0", "0000:03:00.0"]
