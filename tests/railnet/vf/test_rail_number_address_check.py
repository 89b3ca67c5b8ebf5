"""Whether addresses can follow from the numbers of a node's rails."""

from dataclasses import replace

import pytest

from railnet.vf.inventory import Inventory
from railnet.vf.permitted_networks import Network, Networks, NoIpam, SliceIpam
from railnet.vf.rail_memory import RailNumbers, RememberedRail
from railnet.vf.rail_number_address_check import reasons, splits, why_no_address, why_no_vf
from tests.deviceplugin.builders import two_rails

NODE = two_rails()
MEMORY = tuple(RememberedRail(pf.address) for pf in NODE.pfs)
KNOWN = replace(NODE, numbers=RailNumbers(MEMORY))
UNSETTLED = replace(NODE, numbers=RailNumbers((), "a card may be missing"))
NAMED = replace(UNSETTLED, named_rails=(NODE.pfs[0].address,))
EMPTY = Inventory(numbers=RailNumbers())


def networks(*ipams: SliceIpam | NoIpam) -> Networks:
    return Networks({f"n{number}": Network(f"n{number}", ipam=ipam) for number, ipam in enumerate(ipams)})


@pytest.mark.parametrize(
    ("node", "rails", "says"),
    [
        (NODE, 8, None),
        (KNOWN, None, None),
        (KNOWN, 2, None),
        (KNOWN, 8, "ipam.rails is 8, but this node has 2 rails by its memory"),
        (KNOWN, 1, "ipam.rails is 1, but this node has 2 rails by its memory"),
        (UNSETTLED, None, "a card may be missing"),
        (UNSETTLED, 2, "a card may be missing"),
        (NAMED, 8, None),
        (EMPTY, 8, None),
    ],
)
def test_network_gives_no_address_while_its_rails_are_not_certain(
    node: Inventory, rails: int | None, says: str | None
) -> None:
    why = why_no_address(SliceIpam(rails=rails), node)

    assert why is None if says is None else says in str(why)


def test_missing_card_is_no_reason_and_a_card_without_a_rail_is_one() -> None:
    first, second = NODE.pfs
    missing = replace(KNOWN, pfs=(second,))
    more = replace(NODE, numbers=RailNumbers(MEMORY[:1], None, "ipam.rails is 1"))

    assert list(reasons(networks(SliceIpam()), missing)) == []
    assert list(reasons(networks(SliceIpam()), more)) == [f"card {second.address} has no rail yet: ipam.rails is 1"]
    assert [rail.reason is None for rail in missing.rails] == [False, True]
    assert missing.rails[0].address == first.address


def test_reasons_name_the_networks_that_give_no_address() -> None:
    of_two, of_eight = SliceIpam(rails=2), SliceIpam(rails=8)

    (reason,) = reasons(networks(of_two, of_eight, NoIpam()), KNOWN)
    (unsettled,) = reasons(networks(of_two, of_eight), UNSETTLED)

    assert reason.startswith("networks.n1: ipam.rails is 8")
    assert unsettled == "no pod gets an address by its rail: a card may be missing"
    assert splits(networks(of_two, of_eight, SliceIpam(), NoIpam())) == {2, 8}


def test_vfs_are_unhealthy_only_if_no_network_can_serve() -> None:
    assert why_no_vf(networks(SliceIpam()), UNSETTLED) == "a card may be missing"
    assert why_no_vf(networks(SliceIpam(), NoIpam()), UNSETTLED) is None
    assert why_no_vf(networks(SliceIpam()), KNOWN) is None
