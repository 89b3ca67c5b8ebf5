"""The VF table: one owner for each VF, and observers of every change."""

from dataclasses import replace

import pytest

from railnet.errors import NotOurs
from railnet.vf.inventory import Inventory, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.rail_memory import RailNumbers, RememberedRail
from railnet.vf.vf_table import Owner, VfTable
from tests.deviceplugin.builders import two_rails
from tests.railnet.vf.builders import FIRST, SECOND

OWNER = Owner("c0ffee", "eth0", "uid-1")
OTHER = Owner("bad", "eth0", "uid-2")


class Observer:
    """Counts its calls."""

    def __init__(self) -> None:
        self.told = 0

    def __call__(self) -> None:
        self.told += 1


@pytest.fixture
def table() -> VfTable:
    return VfTable(two_rails())


@pytest.fixture
def observer(table: VfTable) -> Observer:
    observer = Observer()
    table.observe(observer)
    return observer


def test_vf_is_free_at_first(table: VfTable) -> None:
    assert table.owner(FIRST) is None


def test_claimed_vf_has_one_owner(table: VfTable) -> None:
    table.claim(FIRST, OWNER)

    assert (table.owner(FIRST), table.owner(SECOND)) == (OWNER, None)


def test_claim_may_be_repeated_by_the_owner(table: VfTable) -> None:
    table.claim(FIRST, OWNER)

    table.claim(FIRST, OWNER)

    assert table.owner(FIRST) == OWNER


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (OTHER, r"VF 0000:03:00\.1 belongs to sandbox c0ffee \(pod UID uid-1\)"),
        (OWNER._replace(ifname="eth1"), "belongs to sandbox c0ffee"),
    ],
    ids=["another sandbox", "another interface of the sandbox"],
)
def test_claim_of_a_vf_with_another_owner_is_refused_with_its_name(table: VfTable, other: Owner, words: str) -> None:
    table.claim(FIRST, OWNER)

    with pytest.raises(NotOurs, match=words):
        table.claim(FIRST, other)

    assert table.owner(FIRST) == OWNER


def test_claim_says_that_a_pod_uid_is_unknown(table: VfTable) -> None:
    table.claim(FIRST, OWNER._replace(pod_uid=""))

    with pytest.raises(NotOurs, match="pod UID unknown"):
        table.claim(FIRST, OTHER)


def test_released_vf_can_be_claimed_again(table: VfTable) -> None:
    table.claim(FIRST, OWNER)

    table.release(FIRST, OWNER)
    table.claim(FIRST, OTHER)

    assert table.owner(FIRST) == OTHER


def test_release_is_ignored_when_it_comes_late_and_the_vf_has_a_new_owner(table: VfTable) -> None:
    table.claim(FIRST, OTHER)

    table.release(FIRST, OWNER)

    assert table.owner(FIRST) == OTHER


def test_release_of_a_free_vf_calls_no_observer(table: VfTable, observer: Observer) -> None:
    table.release(FIRST, OWNER)

    assert observer.told == 0


def test_observers_are_called_after_claim_and_release(table: VfTable, observer: Observer) -> None:
    table.claim(FIRST, OWNER)
    table.release(FIRST, OWNER)

    assert observer.told == 2


def test_observers_are_not_called_when_the_owner_claims_again(table: VfTable, observer: Observer) -> None:
    table.claim(FIRST, OWNER)

    table.claim(FIRST, OWNER)

    assert observer.told == 1


def test_observers_are_not_called_after_a_refused_claim(table: VfTable) -> None:
    table.claim(FIRST, OWNER)
    observer = Observer()
    table.observe(observer)

    with pytest.raises(NotOurs):
        table.claim(FIRST, OTHER)

    assert observer.told == 0


def test_observer_that_was_removed_is_not_called(table: VfTable) -> None:
    observer = Observer()
    stop = table.observe(observer)

    stop()
    table.claim(FIRST, OWNER)

    assert observer.told == 0


def test_observer_may_remove_itself_while_it_is_called(table: VfTable) -> None:
    def once() -> None:
        stop()

    stop, last = table.observe(once), Observer()
    table.observe(last)

    table.claim(FIRST, OWNER)
    table.claim(SECOND, OWNER)

    assert last.told == 2


@pytest.mark.parametrize(
    ("inventory", "told"), [(two_rails(), 0), (Inventory(), 1)], ids=["the same facts", "other facts"]
)
def test_refresh_calls_observers_after_changes_only(
    table: VfTable, observer: Observer, inventory: Inventory, told: int
) -> None:
    table.refresh(inventory)

    assert observer.told == told
    assert table.inventory == inventory


def test_refresh_keeps_the_owner_of_a_vf_that_is_not_seen(table: VfTable) -> None:
    table.claim(FIRST, OWNER)

    table.refresh(Inventory())

    assert table.owner(FIRST) == OWNER


def test_vf_that_was_read_after_the_inventory_began_is_kept(table: VfTable) -> None:
    generation = table.generation
    seen = table.inventory
    unseen = seen.with_vfs({FIRST: replace(known(table, FIRST), netdev=None)})

    table.reread({FIRST: known(table, FIRST)})  # the same as before, and yet newer
    table.refresh(unseen, generation)

    assert table.inventory == seen


def test_vf_that_was_read_before_the_inventory_began_is_replaced(table: VfTable) -> None:
    table.reread({FIRST: known(table, FIRST)})
    unseen = table.inventory.with_vfs({FIRST: replace(known(table, FIRST), netdev=None)})

    table.refresh(unseen, table.generation)

    assert table.inventory == unseen


def test_reread_keeps_what_is_known_of_other_vfs(table: VfTable) -> None:
    changed = replace(known(table, FIRST), netdev=None)

    table.reread({FIRST: changed})

    assert (table.inventory.vf(FIRST), table.inventory.vf(SECOND)) == (changed, two_rails().vf(SECOND))


def test_pf_that_was_read_while_all_were_is_kept_with_the_vfs_of_the_later_reading(table: VfTable) -> None:
    generation, pf = table.generation, table.inventory.pfs[0]
    older = table.inventory.with_vfs({FIRST: replace(known(table, FIRST), netdev=None)})

    table.reread_pfs({pf.address: replace(pf, carrier=False)})
    table.refresh(older, generation)

    assert table.inventory == older.with_pfs({pf.address: replace(pf, carrier=False)})
    assert table.inventory.vf(FIRST) == replace(known(table, FIRST), netdev=None)


def test_pf_that_was_read_before_all_were_is_replaced(table: VfTable) -> None:
    pf = table.inventory.pfs[0]
    table.reread_pfs({pf.address: replace(pf, carrier=False)})

    table.refresh(two_rails(), table.generation)

    assert table.inventory == two_rails()


def test_reread_pf_keeps_the_vfs_that_the_table_has(table: VfTable, observer: Observer) -> None:
    pf = table.inventory.pfs[0]

    table.reread_pfs({pf.address: replace(pf, carrier=True, vfs=())})

    assert table.inventory.pfs == (replace(pf, carrier=True), two_rails().pfs[1])
    assert observer.told == 1


def known(table: VfTable, vf: PciAddress) -> VirtualFunction:
    facts = table.inventory.vf(vf)
    assert facts is not None
    return facts


def test_withheld_vf_has_its_reason_until_the_reasons_are_replaced(table: VfTable) -> None:
    calls = []
    table.observe(lambda: calls.append(1))

    table.withhold({FIRST: "lost"})
    table.withhold({FIRST: "lost"})
    said = table.withheld(FIRST), table.withheld(SECOND)
    table.withhold({})

    assert (said, table.withheld(FIRST), len(calls)) == (("lost", None), None, 2)


def test_reason_goes_with_the_sandbox_that_had_the_vf(table: VfTable) -> None:
    owner = Owner("c0ffee", "eth0", "")
    table.claim(FIRST, owner)
    table.withhold({FIRST: "in a sandbox without a record"})
    before = table.reasons_to_withhold

    table.release(FIRST, owner)

    assert table.withheld(FIRST) is None
    assert (dict(before), dict(table.reasons_to_withhold)) == ({FIRST: "in a sandbox without a record"}, {})


def test_owned_vfs_are_those_of_sandboxes(table: VfTable) -> None:
    table.claim(FIRST, Owner("c0ffee", "eth0", ""))

    assert table.owned() == {FIRST}


def test_rails_are_numbered_by_the_memory_from_then_on_and_observers_are_told() -> None:
    node = two_rails()
    table, told = VfTable(node), []
    table.observe(lambda: told.append(True))
    memory = tuple(RememberedRail(pf.address) for pf in reversed(node.pfs))

    table.number(RailNumbers(memory))
    table.number(RailNumbers(memory))
    after_numbering = len(told)
    table.refresh(replace(node, pfs=node.pfs[:1]))

    assert after_numbering == 1
    assert [(rail.address, rail.pf is None) for rail in table.inventory.rails] == [
        (node.pfs[1].address, True),
        (node.pfs[0].address, False),
    ]
