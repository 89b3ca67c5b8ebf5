"""Parsers of the controllers: what the API server sends, or another program in its place, and annotations that anyone may have written."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any

from railnet.apiserver import client, node_labels, node_status
from railnet.apiserver.client import Answer, RequestFailed, Stream, StreamingApiServer, TooLarge
from railnet.apiserver.object_watch import changes, pages
from railnet.apiserver.request import ApiObject, Collection, Request, log
from railnet.fabric import rails_condition, topology_labels
from railnet.fabric.topology_labels import Leaf, RailPlace
from railnet.gangs import device_claims, placement_annotation, slice_devices
from railnet.gangs.slice_devices import SliceDevices
from railnet.objects import network_status
from railnet.vf.guid import Guid
from tests.fuzz.mutation import SEPARATOR
from tests.fuzz.parser import Parser

_PODS = Collection("v1", "pods")
_LOG = ApiObject("v1", "pods", "w-0", "ml", "log")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LEAVES = {0: RailPlace(Leaf(Guid(0xA1), 3), "400"), 1: RailPlace(Leaf(Guid(0xB2), 3), "56")}
_DOWN, _ABSENT = RailPlace(reason="its link is down"), RailPlace(reason="its card is missing", absent=True)
_PLACES = ({}, _LEAVES, {**_LEAVES, 2: _DOWN, 3: _ABSENT}, {0: _DOWN}, {0: RailPlace(reason="a card", lasting=True)})
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
    """Judge the pieces of a watch: each change has an object and a version, and the cuts between pieces do not matter. So it is with a log."""
    with _api(data) as api, suppress(TooLarge):
        lines = list(api.lines(log(_LOG)))
        assert b"\n".join(lines) == data.replace(SEPARATOR, b"").removesuffix(b"\n")
    with _api(data) as api:
        found = []
        for change in changes(api, _PODS, "1", 300):
            assert isinstance(change.found, dict)
            assert isinstance(change.version, str)
            assert change.version
            found.append(change)
    with _api(data.replace(SEPARATOR, b"")) as api:
        assert list(changes(api, _PODS, "1", 300)) == found


def labels(data: bytes) -> None:
    """Judge the labels of a node, which any administrator may have written: only the daemon's own change, to values that may be labels."""
    with _api(data) as api:
        found = node_labels.parse(api.send(node_labels.look("gpu-7")))
    for places in _PLACES:
        changed = topology_labels.changes(found, places)
        assert all(topology_labels.is_ours(key) for key in changed)
        assert all(value is None or _LABEL_VALUE.fullmatch(value) for value in changed.values())
        after = {key: value for key, value in {**found, **changed}.items() if value is not None}
        assert topology_labels.changes(after, places) == {}


def node(data: bytes) -> None:
    """Judge a node with conditions and taints of any program: the own taint comes and goes, and each other one stays in its place."""
    with _api(data) as api:
        state = node_status.parse(api.send(node_status.look("gpu-7")), rails_condition.TYPE)
    assert isinstance(state.version, str)
    for wanted in (True, False):
        changed = rails_condition.taints(state.taints, wanted=wanted)
        after = state.taints if changed is None else changed
        assert rails_condition.taints(after, wanted=wanted) is None
        assert [one for one in after if not _is_own(one)] == [one for one in state.taints if not _is_own(one)]
        assert sum(map(_is_own, after)) == wanted


def _is_own(taint: object) -> bool:
    return isinstance(taint, dict) and taint.get("key") == rails_condition.TAINT


def listing(data: bytes) -> None:
    """Judge the pages of a list: each has objects and a version."""
    with _api(data) as api:
        for page in pages(api, _PODS):
            assert all(isinstance(one, dict) for one in page.found)
            assert isinstance(page.version, str)
            assert page.version


def rail_addresses(data: bytes) -> None:
    """Judge network-status: each address is in the form in which an EndpointSlice has it."""
    for rail in network_status.rails(data.decode(errors="replace")):
        for text in rail.addresses:
            found = ip_address(text)
            assert str(found) == text
            assert "%" not in text
            assert not (found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast)


def placement(data: bytes) -> None:
    """Judge the annotation of a placement: what is read is written so that the same is read."""
    found = placement_annotation.parse(data.decode(errors="replace"))
    if found is not None:
        assert list(found.domain) == sorted(dict(found.domain).items())
        assert found.attempt >= 1
        assert placement_annotation.parse(placement_annotation.written(found)) == found


def _document(data: bytes) -> dict[str, Any]:
    """Return an object as the API server's client hands it on."""
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("too many brackets") from None
    if not isinstance(document, dict):
        raise TypeError("no object")
    return document


def pool_slice(data: bytes) -> None:
    """Judge a ResourceSlice, which another program may have written: it gives its node at most the devices that it lists, and takes none away."""
    document = _document(data)
    found, devices = slice_devices.pool_slice(document), SliceDevices()
    if found is None:
        return
    listed = len(document["spec"].get("devices") or ())
    assert sum(dict(found.healthy).values()) + len(found.tainted) == listed
    assert devices.change_slice(None, found) == {found.node}
    now, at_best = devices.of(found.node)
    assert all(0 < amount <= at_best[resource] <= listed for resource, amount in now.items())
    assert all("/" in resource for resource in at_best)
    devices.change_slice(found, None)
    assert not devices.of(found.node).now


def device_claim(data: bytes) -> None:
    """Judge a ResourceClaim of any user: it takes of a node what its classes of Railnet's ask for, and never less than nothing."""
    document = _document(data)
    found = device_claims.device_claim(document)
    taken = device_claims.amounts(found, {"rdma/ib_vf"})
    assert all(amount > 0 for amount in taken.values())
    assert set(taken) <= {"rdma/ib_vf", slice_devices.BY_CLAIM}
    assert sum(count for _, count in found.classes) >= taken.get(slice_devices.BY_CLAIM, 0)


_MALFORMED = (KeyError, TypeError, AttributeError, ValueError)  # costs the informer that object
PARSERS = (
    Parser(
        "watch",
        watch,
        (RequestFailed,),
        {"railnet.apiserver.object_watch": ("changes", "_change", "_failure"), "railnet.apiserver.client": ("_lines",)},
    ),
    Parser("list", listing, (RequestFailed,), {"railnet.apiserver.object_watch": ("pages", "_page", "_metadata")}),
    Parser(
        "node-labels",
        labels,
        (RequestFailed,),
        {
            "railnet.apiserver.node_labels": ("parse",),
            "railnet.fabric.topology_labels": ("changes", "_wanted", "_leaf", "_together", "_rate"),
        },
    ),
    Parser(
        "node-status",
        node,
        (RequestFailed,),
        {
            "railnet.apiserver.node_status": ("parse", "_condition", "_object", "_list", "_time"),
            "railnet.fabric.rails_condition": ("taints",),
        },
    ),
    Parser(
        "rail-addresses",
        rail_addresses,
        (),
        {"railnet.objects.network_status": ("rails", "_rail", "_field", "usable_address")},
    ),
    Parser(
        "pool-slice",
        pool_slice,
        _MALFORMED,
        {"railnet.gangs.slice_devices": ("pool_slice", "_number", "_resource", "_by_resource")},
    ),
    Parser("device-claim", device_claim, _MALFORMED, {"railnet.gangs.device_claims": ("device_claim", "_asks")}),
    Parser("placement", placement, (), {"railnet.gangs.placement_annotation": ("parse", "_domain")}),
)
