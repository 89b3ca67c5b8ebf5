"""Parsers of the controllers: what the API server sends, or another program in its place, and annotations that anyone may have written."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address

from apiserver import client
from apiserver.client import Answer, RequestFailed, Stream, StreamingApiServer
from apiserver.object_watch import changes, pages
from apiserver.request import Collection, Request
from controllers import training_pod
from tests.fuzz.mutation import SEPARATOR
from tests.fuzz.parser import Parser

_PODS = Collection("v1", "pods")
_MOST_BYTES = 2048  # the client's limit in this process: an input of 8 MiB would take too long


class _Pieces:
    """A transport whose answers are the parts of an input: the bodies of several answers, or the pieces of one stream."""

    def __init__(self, data: bytes) -> None:
        self._parts = data.split(SEPARATOR)

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        """Answer with the next part, until there is none."""
        if not self._parts:
            raise OSError("the connection is closed")
        return Answer(200, "application/json", "", self._parts.pop(0)[:most_bytes])

    @contextmanager
    def stream(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Iterator[Stream]:
        """Answer with all parts."""
        yield Stream(Answer(200, "application/json", "", b""), iter(self._parts))


@contextmanager
def _api(data: bytes) -> Iterator[StreamingApiServer]:
    real, client._MAX_ANSWER_BYTES = client._MAX_ANSWER_BYTES, _MOST_BYTES
    try:
        yield StreamingApiServer(_Pieces(data), lambda: "a-token", "fuzz")
    finally:
        client._MAX_ANSWER_BYTES = real


def watch(data: bytes) -> None:
    """Judge the pieces of a watch: each change has an object and a version, and the cuts between pieces do not matter."""
    with _api(data) as api:
        found = []
        for change in changes(api, _PODS, "1", 300):
            assert isinstance(change.found, dict)
            assert isinstance(change.version, str)
            assert change.version
            found.append(change)
    with _api(data.replace(SEPARATOR, b"")) as api:
        assert list(changes(api, _PODS, "1", 300)) == found


def listing(data: bytes) -> None:
    """Judge the pages of a list: each has objects and a version."""
    with _api(data) as api:
        for page in pages(api, _PODS):
            assert all(isinstance(one, dict) for one in page.found)
            assert isinstance(page.version, str)
            assert page.version


def rail_addresses(data: bytes) -> None:
    """Judge network-status: each address is in the form in which an EndpointSlice has it."""
    for text in training_pod._addresses(data.decode(errors="replace")):
        found = ip_address(text)
        assert str(found) == text
        assert "%" not in text
        assert not (found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast)


PARSERS = (
    Parser(
        "watch",
        watch,
        (RequestFailed,),
        {"apiserver.object_watch": ("changes", "_change", "_failure"), "apiserver.client": ("_lines",)},
    ),
    Parser("list", listing, (RequestFailed,), {"apiserver.object_watch": ("pages", "_page", "_metadata")}),
    Parser("rail-addresses", rail_addresses, (), {"controllers.training_pod": ("_addresses", "endpoint_address")}),
)
