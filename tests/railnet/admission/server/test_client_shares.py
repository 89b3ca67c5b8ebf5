"""Which connection gives up its place, and what one client is."""

import pytest

from railnet.admission.server.client_shares import Shares, client_of


def test_oldest_of_the_client_with_the_most_gives_up_its_place():
    shares = Shares[str]()
    for client, one in (("api", "a"), ("pod", "b"), ("pod", "c"), ("pod", "d")):
        shares.add(client, one)

    assert (shares.largest(), shares.oldest_of_the_largest(), shares.newest("pod")) == ("pod", "b", "d")
    shares.discard("b")
    assert shares.oldest_of_the_largest() == "c"


def test_client_whose_connections_have_ended_is_forgotten():
    shares = Shares[str]()
    shares.add("api", "a")
    shares.discard("a")
    shares.discard("a")

    assert (len(shares), shares.all(), list(shares.clients()), shares.count("api")) == (0, (), [], 0)


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fd00:1:2:3::1", "fd00:1:2:3::"),
        ("fd00:1:2:3:ffff::9", "fd00:1:2:3::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::"),
    ],
)
def test_client_is_an_ipv4_address_or_the_64_bits_of_an_ipv6_network(address: str, client: str):
    assert client_of(address) == client
