"""What keeps the rails of one pod apart: settings of ARP, and a routing table for each rail whose prefixes overlap another's."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given

from railnet.vf.arp_and_source_routing import APART, keep_apart
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Attachment
from railnet.vf.steps import RailRouting, Route
from tests.railnet.vf.builders import FIRST, SECOND, an_attachment, attachments

THIRD = PciAddress.parse("0000:a3:00.1")
RANGE = Route(ip_network("10.56.0.0/16"), None)


def rail(vf: PciAddress, *addresses: str, routes: tuple[Route, ...] = ()) -> Attachment:
    return an_attachment(vf=vf, addresses=tuple(map(ip_interface, addresses)), routes=routes)


def routing(*rails: Attachment) -> list[RailRouting | None]:
    return [one.routing for one in keep_apart(rails, "auto")]


def table(number: int, source: str, *routes: str) -> RailRouting:
    return RailRouting(APART, number, (ip_address(source),), tuple(Route(ip_network(route), None) for route in routes))


def test_single_rail_gets_nothing() -> None:
    assert routing(rail(FIRST, "10.56.3.1/17", routes=(RANGE,))) == [None]


def test_network_without_routing_gets_nothing() -> None:
    rails = (rail(FIRST, "10.60.0.1/24"), rail(SECOND, "10.60.0.2/24"))

    assert keep_apart(rails, "none") == rails


def test_rails_with_prefixes_of_their_own_need_no_table() -> None:
    assert routing(rail(FIRST, "10.60.1.5/24"), rail(SECOND, "10.60.2.5/24")) == [
        RailRouting(APART, 5601),
        RailRouting(APART, 5602),
    ]


def test_rails_without_addresses_need_no_table() -> None:
    assert routing(rail(FIRST), rail(SECOND)) == [RailRouting(APART, 5601), RailRouting(APART, 5602)]


def test_first_route_to_a_destination_counts_in_a_rails_table_as_it_does_in_the_main_table() -> None:
    again = Route(ip_network("10.61.0.0/16"), ip_address("10.61.0.1"))
    first, second = rail(FIRST, "10.61.0.5/16", routes=(again,)), rail(SECOND, "10.61.0.6/16", routes=(again,))

    assert routing(first, second) == [
        table(5601, "10.61.0.5", "10.61.0.0/16"),
        table(5602, "10.61.0.6", "10.61.0.0/16"),
    ]


def test_rails_of_a_joined_range_each_reach_all_of_it() -> None:
    first, second = rail(FIRST, "10.56.3.1/18", routes=(RANGE,)), rail(SECOND, "10.56.67.1/18")
    third = rail(THIRD, "10.56.131.1/18")

    assert routing(first, second, third) == [
        table(5601, "10.56.3.1", "10.56.0.0/16"),
        table(5602, "10.56.67.1", "10.56.0.0/16"),
        table(5603, "10.56.131.1", "10.56.0.0/16"),
    ]


def test_rails_of_one_subnet_each_reach_it() -> None:
    assert routing(rail(FIRST, "10.60.0.1/24"), rail(SECOND, "10.60.0.2/24")) == [
        table(5601, "10.60.0.1", "10.60.0.0/24"),
        table(5602, "10.60.0.2", "10.60.0.0/24"),
    ]


def test_rail_whose_prefix_overlaps_no_other_has_no_table() -> None:
    third = routing(rail(FIRST, "10.60.0.1/24"), rail(SECOND, "10.60.0.2/24"), rail(THIRD, "10.61.0.3/24"))[2]

    assert third == RailRouting(APART, 5603)


def test_only_the_family_that_overlaps_has_a_rule() -> None:
    found = routing(rail(FIRST, "10.60.1.1/24", "fd60::1/64"), rail(SECOND, "10.60.2.1/24", "fd60::2/64"))

    assert found == [table(5601, "fd60::1", "fd60::/64"), table(5602, "fd60::2", "fd60::/64")]


def test_table_has_the_rails_routes_through_its_gateway_after_the_prefix_that_reaches_it() -> None:
    there = Route(ip_network("10.62.0.0/16"), ip_address("10.61.0.1"))
    rails = (rail(FIRST, "10.61.0.2/29", routes=(there,)), rail(SECOND, "10.61.0.3/29", routes=(there,)))

    assert [one.routes for one in routing(*rails) if one is not None] == [
        (Route(ip_network("10.61.0.0/29"), None), there)
    ] * 2


def test_routes_of_the_other_family_are_left_out() -> None:
    there = Route(ip_network("fd62::/64"), ip_address("fd61::1"))
    rails = (rail(FIRST, "10.60.0.1/24", "fd61::2/64", routes=(there,)), rail(SECOND, "10.60.0.2/24"))

    assert routing(*rails) == [table(5601, "10.60.0.1", "10.60.0.0/24"), table(5602, "10.60.0.2", "10.60.0.0/24")]


@pytest.mark.slow
@given(attachments, attachments)
def test_every_packet_from_an_address_with_a_rule_finds_the_way_to_its_own_prefix(
    one: Attachment, other: Attachment
) -> None:
    rails = (replace(one, vf=FIRST), replace(other, vf=SECOND))

    for found in keep_apart(rails, "auto"):
        assert found.routing is not None
        assert found.routing.ipv4 == APART
        for source in found.routing.sources:
            assert any(
                route.gateway is None and source.version == route.destination.version and source in route.destination
                for route in found.routing.routes
            )
