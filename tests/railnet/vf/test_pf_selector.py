"""The conditions for PFs: what meets them, which PFs an entry of `provision` means, and which cards become rails."""

from dataclasses import replace

import pytest

from railnet.vf.inventory import Inventory, Port
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import PfSelector, described
from railnet.vf.provision import Provision, ProvisionBySelector, matching, selected, unmatched
from tests.deviceplugin.builders import a_pf, a_vf, an_rdma_device

ROCE = Port("4: ACTIVE", "5: LinkUp", "Ethernet")
SEVEN = a_pf()
SECOND_PORT = a_pf(address="0000:03:00.1")
FAR = a_pf(address="0000:83:00.0", numa_node=1)
OLD = a_pf(address="0000:a3:00.0", device="0x1017", numa_node=-1)
ROCE_CARD = a_pf(address="0000:c3:00.0", rdma=an_rdma_device(9, ROCE), class_code=0x020000)
NODE = Inventory((SEVEN, SECOND_PORT, FAR, OLD, ROCE_CARD), rail_link_layers=frozenset({"InfiniBand"}))


def at(*addresses: str) -> tuple[PciAddress, ...]:
    return tuple(map(PciAddress.parse, addresses))


@pytest.mark.parametrize(
    ("select", "matches"),
    [
        (PfSelector(), at("0000:03:00.0", "0000:03:00.1", "0000:83:00.0", "0000:a3:00.0")),
        (PfSelector(pf_device=("1021",)), at("0000:03:00.0", "0000:03:00.1", "0000:83:00.0")),
        (PfSelector(pf_device=("0x1017", "1015")), at("0000:a3:00.0")),
        (PfSelector(vendor=("15B3",)), at("0000:03:00.0", "0000:03:00.1", "0000:83:00.0", "0000:a3:00.0")),
        (PfSelector(vendor=("8086",)), ()),
        (PfSelector(function=(1,)), at("0000:03:00.1")),
        (PfSelector(function=(0,), numa_node=(0,)), at("0000:03:00.0")),
        (PfSelector(numa_node=(1, -1)), at("0000:83:00.0", "0000:a3:00.0")),
        (PfSelector(pf=at("0000:83:00.0", "0000:99:00.0")), at("0000:83:00.0")),
        (PfSelector(link_type=("infiniband",), pf_device=("1017",)), at("0000:a3:00.0")),
        (PfSelector(link_type=("ether",)), ()),
    ],
)
def test_selector_matches_pfs_that_meet_all_conditions_and_have_a_link_type_of_the_pools(
    select: PfSelector, matches: tuple[PciAddress, ...]
) -> None:
    assert matching(select, NODE) == matches


def test_pf_of_another_link_type_is_selected_where_a_pool_asks_for_it() -> None:
    node = replace(NODE, rail_link_layers=frozenset({"InfiniBand", "Ethernet"}))

    assert matching(PfSelector(link_type=("ether",)), node) == at("0000:c3:00.0")


@pytest.mark.parametrize(
    ("select", "matches"),
    [
        (PfSelector(vendor=("15b3",), numa_node=(0,)), True),
        (PfSelector(numa_node=(1,)), False),
        (PfSelector(pf_device=("1021",)), False),
        (PfSelector(function=(0,)), False),
        (PfSelector(pf=at("0000:03:00.1")), False),
    ],
)
def test_vf_without_a_pf_meets_no_condition_of_a_pf(select: PfSelector, matches: bool) -> None:
    lone = a_vf(pf=None)

    assert select.matches_lone(lone) == matches
    assert [card.eligible for card in Inventory((), (lone,), rail_select=select).cards] == [matches]


def test_rails_are_the_cards_that_the_selector_matches() -> None:
    node = replace(NODE, rail_select=PfSelector(function=(0,), numa_node=(0, 1)))

    assert [rail.address for rail in node.rails] == [*at("0000:03:00.0", "0000:83:00.0")]
    assert node.selects_no_rail is None


def test_selector_that_leaves_a_node_with_cards_without_a_rail_is_said_with_the_cards() -> None:
    why = replace(NODE, rail_select=PfSelector(pf_device=("1099",))).selects_no_rail

    assert why is not None
    assert "`rails.select` in node.yaml matches no PF of this node" in why
    assert "0000:a3:00.0 (15b3:1017, infiniband, NUMA node -1)" in why
    assert "0000:c3:00.0" not in why


@pytest.mark.parametrize(
    "node",
    [replace(NODE, pfs=(ROCE_CARD,), rail_select=PfSelector(pf_device=("1099",))), NODE, Inventory()],
    ids=["no card of the link type", "no selector", "no card"],
)
def test_node_with_nothing_to_select_from_says_nothing(node: Inventory) -> None:
    assert node.selects_no_rail is None


def test_one_file_serves_unlike_nodes() -> None:
    entries = (
        ProvisionBySelector(8, PfSelector(pf_device=("1021",), function=(0,))),
        ProvisionBySelector(4, PfSelector(pf_device=("1017",))),
        ProvisionBySelector(2, PfSelector(pf_device=("1099",))),
    )

    first, second = replace(NODE, pfs=(SEVEN, FAR)), replace(NODE, pfs=(OLD,))

    assert selected(entries, first) == ((Provision(SEVEN.address, 8), Provision(FAR.address, 8)), {})
    assert selected(entries, second) == ((Provision(OLD.address, 4),), {})
    assert (unmatched(entries, first), unmatched(entries, second)) == ({}, {})


@pytest.mark.parametrize(
    "entries",
    [
        (
            ProvisionBySelector(8, PfSelector(numa_node=(0, 1))),
            ProvisionBySelector(4, PfSelector(function=(0,), numa_node=(0,))),
        ),
        (ProvisionBySelector(8, PfSelector(numa_node=(0, 1))), Provision(SEVEN.address, 8)),
    ],
    ids=["two selectors", "a selector and an address"],
)
def test_pf_that_two_entries_match_gets_nothing_and_costs_no_other_pf(
    entries: tuple[Provision | ProvisionBySelector, ...],
) -> None:
    wanted, twice = selected(entries, NODE)

    assert wanted == (Provision(SECOND_PORT.address, 8), Provision(FAR.address, 8))
    assert twice.keys() == {SEVEN.address}
    assert "PF 0000:03:00.0 is matched by provision[0] and provision[1] in node.yaml" in twice[SEVEN.address]
    assert unmatched(entries, NODE) == {}


def test_node_of_which_no_entry_matches_a_pf_is_told_what_it_has() -> None:
    entries = (ProvisionBySelector(8, PfSelector(pf_device=("1099",))), Provision(PciAddress.parse("0000:99:00.0"), 8))
    with_vfs = a_pf(a_vf("0000:e3:00.1", pf=PciAddress.parse("0000:e3:00.0")), address="0000:e3:00.0")

    troubles = unmatched(entries, replace(NODE, pfs=(SEVEN, with_vfs, ROCE_CARD)))

    assert troubles.keys() == {SEVEN.address}
    assert "it has 0000:03:00.0 (15b3:1021, infiniband, NUMA node 0), 0000:e3:00.0" in troubles[SEVEN.address]


def test_addresses_alone_are_not_judged_as_selectors() -> None:
    assert unmatched((Provision(PciAddress.parse("0000:99:00.0"), 8),), NODE) == {}
    assert unmatched((), NODE) == {}


def test_described_pf_has_what_selectors_compare() -> None:
    assert described(FAR) == "0000:83:00.0 (15b3:1021, infiniband, NUMA node 1)"
