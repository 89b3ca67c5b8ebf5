"""Which addresses are the node's own."""

from ipaddress import ip_address

import pytest

from kernel.local_address import is_local


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
def test_address_is_the_nodes_where_the_kernel_would_send_from_it_to_it(address: str, local: bool) -> None:
    assert is_local(ip_address(address)) is local
