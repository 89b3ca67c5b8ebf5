"""A stand-in for CoreDNS, which no package registry has: the cluster's DNS over UDP and TCP, from what the API server has.

`python -m tests.stand_ins.dns_server KUBECONFIG ADDRESS PORT`. `dns_records` says which part of CoreDNS' plugin `kubernetes` it
has. It has no cache and forwards nothing: a name outside the cluster's zone is denied at once, as by an upstream server that
knows no name.
"""

import asyncio
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.stand_ins import dns_messages
from tests.stand_ins.dns_records import ClusterRecords
from tests.stand_ins.watched_objects import Connections, WatchedObjects

_IDLE_SECONDS = 10.0  # RFC 7766, section 6.2.3: "of the order of a few seconds"
_SLICES = "/apis/discovery.k8s.io"

Records = Callable[[], ClusterRecords | None]


class ClusterView:
    """The records of what the API server has now, made again when an object has changed and a question comes."""

    def __init__(self, objects: WatchedObjects) -> None:
        """Read Services, EndpointSlices and namespaces, in this order."""
        self._objects = objects
        self._made_of = -1
        self._records: ClusterRecords | None = None

    def records(self) -> ClusterRecords | None:
        """Return the records; None until the API server has answered."""
        version = self._objects.version
        if version != self._made_of and (lists := self._objects.lists()) is not None:
            services, slices, namespaces = lists
            self._records = ClusterRecords(services, slices, [one["metadata"]["name"] for one in namespaces])
            self._made_of = version
        return self._records


def watched(connections: Connections) -> WatchedObjects:
    """Return the objects that the records are made of; EndpointSlices in version v1, or in v1beta1 where only that is served."""

    def slices() -> str:
        served = {one["version"] for one in connections.get(_SLICES)["versions"]}
        return f"{_SLICES}/{'v1' if 'v1' in served else 'v1beta1'}/endpointslices"

    return WatchedObjects(connections, (lambda: "/api/v1/services", slices, lambda: "/api/v1/namespaces"))


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, records: Records) -> None:
        self._records = records
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        try:
            self._transport.sendto(dns_messages.reply(data, self._records()), addr)
        except dns_messages.NotAQuery as error:
            sys.stderr.write(f"{addr}: {error}\n")


async def _serve_stream(records: Records, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the queries of a connection; RFC 1035, section 4.2.2: two bytes of length before each message."""
    try:
        while True:
            async with asyncio.timeout(_IDLE_SECONDS):
                (length,) = struct.unpack("!H", await reader.readexactly(2))
                query = await reader.readexactly(length)
            answer = dns_messages.reply(query, records(), dns_messages.TCP_BYTES)
            writer.write(struct.pack("!H", len(answer)) + answer)
            await writer.drain()
    except (asyncio.IncompleteReadError, TimeoutError, ConnectionError, dns_messages.NotAQuery):
        pass  # the client has all it wants, or is none
    finally:
        writer.close()


class Listening:
    """The sockets of a server."""

    def __init__(self, datagrams: asyncio.DatagramTransport, streams: asyncio.Server) -> None:
        self._datagrams, self._streams = datagrams, streams

    def close(self) -> None:
        self._datagrams.close()
        self._streams.close()


async def listen(records: Records, address: str, port: int) -> Listening:
    """Begin to answer on a UDP and a TCP port of the same number.

    Raises:
        OSError: another program has the port.
    """
    loop = asyncio.get_running_loop()
    datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(records), local_addr=(address, port))
    try:
        streams = await asyncio.start_server(
            lambda reader, writer: _serve_stream(records, reader, writer), address, port
        )
    except OSError:
        datagrams.close()
        raise
    return Listening(datagrams, streams)


async def _serve(records: Records, address: str, port: int) -> None:
    await listen(records, address, port)
    await asyncio.Event().wait()


def main(arguments: list[str]) -> None:
    """Serve until the process is killed."""
    kubeconfig, address, port = arguments
    objects = watched(Connections(Path(kubeconfig)))
    objects.start()
    asyncio.run(_serve(ClusterView(objects).records, address, int(port)))


if __name__ == "__main__":
    main(sys.argv[1:])
