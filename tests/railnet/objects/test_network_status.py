"""The annotation network-status, as the daemon or anyone else has written it."""

import json
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.objects.network_status import ANNOTATION, PublishedRail, rails, rails_of_pod, usable_address

PRIMARY = {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"], "default": True}
WHOLE: dict[str, Any] = {
    "name": "railnet/default",
    "interface": "net1",
    "ips": ["10.56.1.129", "fd00::1"],
    "mac": "00:00:20:30",
    "mtu": 4092,
    "dns": {},
    "device-info": {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.1"}},
    "rail": 3,
}


def rail(**changes: object) -> dict[str, Any]:
    return {**WHOLE, **changes}


def read(*elements: object) -> tuple[PublishedRail, ...]:
    return rails(json.dumps(elements))


def test_rail_is_read_with_all_that_the_daemon_writes() -> None:
    assert read(PRIMARY, WHOLE) == (
        PublishedRail("railnet/default", "net1", ("10.56.1.129", "fd00::1"), "00:00:20:30", 4092, 3, "0000:03:00.1"),
    )


def test_rails_are_in_the_order_of_their_interfaces() -> None:
    assert [told.interface for told in read(*(rail(interface=f"net{number}") for number in (10, 2, 1)))] == [
        "net1",
        "net2",
        "net10",
    ]


def test_field_that_is_missing_or_null_is_empty() -> None:
    bare = PublishedRail("railnet/default", "net1")

    assert read({"name": "railnet/default", "interface": "net1"}) == (bare,)
    assert read({**dict.fromkeys(WHOLE), "name": "railnet/default", "interface": "net1"}) == (bare,)


@pytest.mark.parametrize(
    "strange",
    [
        {"name": "railnet/"},
        {"name": "railnet/\x1b"},
        {"name": "railnet/" + "x" * 64},
        {"name": 5},
        {"name": None},
        {"interface": "eth0"},
        {"interface": "net0"},
        {"interface": "net1000"},
        {"interface": 1},
        {"interface": None},
        {"ips": "10.0.0.1"},
        {"ips": {"10.0.0.1": 1}},
        {"ips": [167772161]},
        {"ips": ["10.0.0.0/8"]},
        {"ips": [["10.0.0.1"]]},
        {"mac": 5},
        {"mtu": "4092"},
        {"mtu": -1},
        {"mtu": True},
        {"mtu": 4092.5},
        {"rail": -1},
        {"rail": "0"},
        {"rail": False},
        {"device-info": []},
        {"device-info": {"pci": "0000:03:00.1"}},
        {"device-info": {"pci": {"pci-address": 3}}},
    ],
    ids=str,
)
def test_annotation_with_a_field_of_another_form_counts_as_absent(strange: dict[str, object]) -> None:
    assert len(read(WHOLE)) == 1
    assert read(WHOLE, rail(**strange)) == ()


@pytest.mark.parametrize("missing", ["name", "interface"])
def test_annotation_of_a_network_without_a_name_counts_as_absent(missing: str) -> None:
    assert read(WHOLE, {key: value for key, value in WHOLE.items() if key != missing}) == ()


@pytest.mark.parametrize(
    "text",
    ["", "null", "5", "{", '{"name": "railnet/x"}', '["railnet/x"]', "[[]]", "[null]", "[" * 100_000, "1" * 10_000],
    ids=lambda text: text[:20],
)
def test_annotation_of_another_form_tells_no_rails(text: str) -> None:
    assert rails(text) == ()
    assert rails_of_pod({"metadata": {"annotations": {ANNOTATION: text}}}) == ()


def test_pod_with_thousands_of_rails_is_read_as_far_as_a_pod_can_have_them() -> None:
    assert len(read(*([WHOLE] * 200))) == 64
    assert len(read(rail(ips=[f"10.56.{number}.1" for number in range(200)]))[0].addresses) == 16


def test_annotation_of_more_than_64_rails_is_not_parsed() -> None:
    assert read(rail(interface="net2"), *[PRIMARY] * 1000) == ()


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": None},
        {"metadata": {}},
        {"metadata": {"annotations": None}},
        {"metadata": {"annotations": []}},
        {"metadata": {"annotations": {ANNOTATION: 5}}},
        {"metadata": {"annotations": {ANNOTATION: [WHOLE]}}},
    ],
    ids=str,
)
def test_pod_without_the_annotation_tells_no_rails(pod: dict[str, Any]) -> None:
    assert rails_of_pod(pod) == ()


@pytest.mark.parametrize(
    "text", ["::", "127.0.0.1", "::1", "169.254.1.1", "fe80::1", "224.0.0.1", "ff02::1", "::ffff:10.0.0.1", "fd00::1%a"]
)
def test_address_that_names_no_interface_of_the_network_is_left_out(text: str) -> None:
    assert usable_address(text) == ""
    assert read(rail(ips=[text, "10.0.0.1"]))[0].addresses == ("10.0.0.1",)


@given(st.ip_addresses(v=4) | st.integers(0, 255).map(lambda byte: IPv4Address((byte << 24) + 1)))
def test_ipv4_address_is_usable_unless_it_is_special(ip: IPv4Address) -> None:
    special = ip.is_unspecified or ip.is_loopback or ip.is_link_local or ip.is_multicast

    assert usable_address(str(ip)) == ("" if special else str(ip))


@pytest.mark.parametrize("text", ["", "10.0.0", "10.0.0.256", "10.0.0.01", "10.0.0.1 ", "10.0.0.1/8", "\u0661.0.0.1"])
def test_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        usable_address(text)


def test_ipv6_address_is_in_its_usual_form() -> None:
    assert usable_address("FD00::0:1") == "fd00::1"


def test_number_is_no_address() -> None:
    with pytest.raises(TypeError):
        usable_address(167772161)
