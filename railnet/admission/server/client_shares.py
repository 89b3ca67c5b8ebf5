"""Connections by client: the client with the most gives up its oldest when there is no place for another. Pure."""

from collections.abc import Collection
from ipaddress import IPv6Address
from typing import Generic, TypeVar

_One = TypeVar("_One")
_INTERFACE_BITS = 64  # RFC 4291: a host may use every address of its /64


class Shares(Generic[_One]):
    """Connections of one kind, of each client the oldest first."""

    def __init__(self) -> None:
        """Be empty."""
        self._by_client: dict[str, dict[_One, None]] = {}
        self._client: dict[_One, str] = {}

    def __len__(self) -> int:
        return len(self._client)

    def __contains__(self, connection: _One) -> bool:
        return connection in self._client

    def all(self) -> tuple[_One, ...]:
        """Return all of them, oldest first."""
        return tuple(self._client)

    def add(self, client: str, connection: _One) -> None:
        """Add the newest."""
        self._by_client.setdefault(client, {})[connection] = None
        self._client[connection] = client

    def discard(self, connection: _One) -> None:
        """Remove one, if it is there."""
        client = self._client.pop(connection, None)
        if client is not None:
            del self._by_client[client][connection]
            if not self._by_client[client]:
                del self._by_client[client]

    def count(self, client: str) -> int:
        """Return how many a client has."""
        return len(self._by_client.get(client, ()))

    def clients(self) -> Collection[str]:
        """Return the clients that have any."""
        return self._by_client.keys()

    def of(self, client: str) -> tuple[_One, ...]:
        """Return a client's, oldest first."""
        return tuple(self._by_client[client])

    def newest(self, client: str) -> _One:
        """Return a client's newest."""
        return next(reversed(self._by_client[client]))

    def largest(self) -> str:
        """Return the client that has the most."""
        return max(self._by_client, key=self.count)

    def oldest_of_the_largest(self) -> _One:
        """Return the oldest of the client that has the most."""
        return next(iter(self._by_client[self.largest()]))


def client_of(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 of an IPv6 address."""
    address = address.removeprefix("::ffff:")  # IPv4 on a socket of IPv6, as inet_ntop(3) writes it
    if ":" not in address:
        return address
    ipv6 = IPv6Address(address.partition("%")[0])
    return str(IPv6Address(int(ipv6) >> _INTERFACE_BITS << _INTERFACE_BITS))
