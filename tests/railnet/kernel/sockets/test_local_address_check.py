"""Addresses of the node, and addresses of other hosts."""

from ipaddress import ip_address

import pytest

from railnet.kernel.sockets.local_address_check import is_local


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1", True),
        ("192.0.2.1", False),
        ("255.255.255.255", False),
        ("2001:db8::1", False),
        ("fe80::1", False),
    ],
)
def test_address_is_local_if_it_belongs_to_the_node(address: str, local: bool) -> None:
    assert is_local(ip_address(address)) is local
