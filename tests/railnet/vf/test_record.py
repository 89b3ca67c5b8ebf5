"""The journal's record: what was written is read back, and any other bytes are refused."""

import hashlib
import json
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.vf.record import LostRecord, Record, SandboxPod, UnreadableRecord, decode, encode, find_lost
from railnet.vf.steps import Ipv4Settings, RailRouting, Route
from tests.railnet.vf.builders import FIRST, SECOND, a_record, an_attachment, records

RECORD = a_record(
    an_attachment(), an_attachment(ifname="net2", vf=SECOND, rail=1, guid=None, addresses=(), rdma=None, uverbs=None)
)
WRITTEN = encode(RECORD)
CONTENT = len(WRITTEN.rstrip())  # all but the newline at the end


def resealed(body: dict[str, Any]) -> bytes:
    """Return a body with the right digest, whatever is in the body."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({**body, "sha256": digest}).encode()


def a_body(**changes: Any) -> dict[str, Any]:
    body = json.loads(WRITTEN)
    del body["sha256"]
    return {**body, **changes}


@pytest.mark.slow
@given(records)
def test_record_is_read_back_as_it_was_written(record: Record) -> None:
    assert decode(encode(record)) == record


def test_configuration_of_a_plugin_is_written_whatever_is_in_it() -> None:
    odd = {
        "": {},
        "lists": [[], [1, [True, None]], {'é\ud800"': 1.5}],
        "small": -1e-7,
        "text": "\x00\n☃",
        "large": 1 << 80,
    }
    written = encode(replace(RECORD, primary=odd))

    assert json.loads(written)["primary"] == odd
    assert decode(written).primary == odd


def test_configuration_may_be_nested_as_deeply_as_it_is_read() -> None:
    odd: dict[str, Any] = {}
    for _ in range(600):
        odd = {"deeper": odd}

    assert b'"deeper": {}' in encode(replace(RECORD, primary=odd))


def test_record_has_the_keys_that_are_on_disk() -> None:
    body = json.loads(WRITTEN)

    assert list(body) == [
        "version",
        "id",
        "ifname",
        "netns",
        "pod",
        "stage",
        "attachments",
        "primary",
        "network",
        "ipam",
        "boot",
        "sha256",
    ]
    assert body["attachments"][0] == {
        "ifname": "net1",
        "vf": str(FIRST),
        "rail": 0,
        "link_layer": "InfiniBand",
        "guid": "ba:59:9f:03:01:f9:8f:86",
        "mtu": 4092,
        "addresses": ["10.56.3.1/16"],
        "host_ifname": "ibs5v0",
        "rdma": "mlx5_4",
        "uverbs": {"name": "uverbs4", "major": 231, "minor": 196},
        "routes": [],
    }


def test_record_of_the_version_before_is_read_since_sandboxes_outlive_an_upgrade() -> None:
    body = a_body(version=2)
    del body["boot"]

    assert decode(resealed(body)) == replace(RECORD, boot="")


def test_record_of_a_pod_with_one_rail_has_no_key_that_an_older_version_does_not_know() -> None:
    assert b"routing" not in WRITTEN


def test_record_of_rails_that_are_kept_apart_says_how() -> None:
    routing = RailRouting(
        Ipv4Settings(1, 2, 2), 5601, (ip_address("10.56.3.1"),), (Route(ip_network("10.56.0.0/16"), None),)
    )
    record = a_record(an_attachment(routing=routing))
    (attachment,) = json.loads(encode(record))["attachments"]

    assert decode(encode(record)) == record
    assert attachment["routing"] == {
        "ipv4": {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2},
        "table": 5601,
        "sources": ["10.56.3.1"],
        "routes": [{"dst": "10.56.0.0/16", "gw": None}],
    }


def test_record_is_text_of_one_line_for_each_value() -> None:
    assert b'\n "stage": "planned",\n' in WRITTEN
    assert WRITTEN.endswith(b'"}\n')


def test_key_names_container_and_interface() -> None:
    assert RECORD.key == "c0ffee@eth0"


def test_record_is_unreadable_when_it_is_truncated() -> None:
    for length in range(CONTENT):
        with pytest.raises(UnreadableRecord):
            pytest.fail(f"{length} bytes are a record: {decode(WRITTEN[:length])}")


@given(st.integers(0, CONTENT - 1), st.integers(0, 255))
def test_changed_byte_makes_a_record_unreadable_or_changes_nothing(position: int, byte: int) -> None:
    changed = WRITTEN[:position] + bytes((byte,)) + WRITTEN[position + 1 :]

    try:
        record = decode(changed)
    except UnreadableRecord:
        return
    assert record == RECORD  # white space became other white space


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"planned"', b'"attached"'),
        (b'"rail": 0', b'"rail": 1'),
        (b"0000:03:00.1", b"0000:03:00.2"),
        (b"10.56.3.1/16", b"10.56.3.2/16"),
        (b'"inode": 4026532300', b'"inode": 4026532301'),
        (b'"runtimeConfig": {}', b'"runtimeConfig": []'),
    ],
)
def test_record_is_unreadable_when_a_value_was_changed(old: bytes, new: bytes) -> None:
    assert old in WRITTEN

    with pytest.raises(UnreadableRecord, match="its SHA-256 is another"):
        decode(WRITTEN.replace(old, new, 1))


@pytest.mark.parametrize("version", [0, 1, "2", None, [2]], ids=repr)
def test_record_of_another_version_is_unreadable_and_says_so(version: object) -> None:
    with pytest.raises(UnreadableRecord, match=r"version .*; this Railnet reads 2"):
        decode(resealed(a_body(version=version)))


SETTINGS = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2}
MISSHAPED = {
    "no netns": a_body(netns=None),
    "netns with another key": a_body(netns={"path": "/x", "dev": 1, "inode": 2, "more": 3}),
    "pod without a key": a_body(pod={"name": "a"}),
    "attachments of another kind": a_body(attachments=7),
    "attachment without keys": a_body(attachments=[{}]),
    "table that is none": a_body(
        attachments=[
            {**a_body()["attachments"][0], "routing": {"ipv4": SETTINGS, "table": 0, "sources": [], "routes": []}}
        ]
    ),
    "settings without a key": a_body(
        attachments=[{**a_body()["attachments"][0], "routing": {"ipv4": {}, "table": 1, "sources": [], "routes": []}}]
    ),
    "VF that is no address": a_body(attachments=[{**a_body()["attachments"][0], "vf": "x"}]),
    "GUID that is no GUID": a_body(attachments=[{**a_body()["attachments"][0], "guid": "x"}]),
    "address that is none": a_body(attachments=[{**a_body()["attachments"][0], "addresses": ["10.0.0.1/99"]}]),
    "attachment that is a list": a_body(attachments=[[]]),
    "address that is a number": a_body(attachments=[{**a_body()["attachments"][0], "addresses": [7]}]),
    "MTU that is a text": a_body(attachments=[{**a_body()["attachments"][0], "mtu": "4092"}]),
    "stage of another Railnet": a_body(stage="done"),
    "pod without a text": a_body(pod={"namespace": "a", "name": "b", "uid": 7}),
    "primary that is a list": a_body(primary=[]),
    "id that leads elsewhere": a_body(id="../../etc/passwd"),
    "id that is hidden": a_body(id=".c0ffee"),
    "ifname that leads elsewhere": a_body(ifname="a/b"),
}


@pytest.mark.parametrize("body", MISSHAPED.values(), ids=MISSHAPED.keys())
def test_record_is_unreadable_when_its_shape_is_odd(body: dict[str, Any]) -> None:
    with pytest.raises(UnreadableRecord):
        decode(resealed(body))


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff\xfe", b"null", b"[]", b'["sha256"]', b"7", b'"x"', b"{}", b'{"sha256": 1}', b"[" * 100_000],
    ids=lambda raw: repr(raw[:20]),
)
def test_record_is_unreadable_when_it_is_something_else(raw: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode(raw)


@given(st.binary())
def test_decode_raises_nothing_but_unreadable(raw: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode(raw)


# What is still readable of an unreadable record.


@pytest.mark.parametrize("length", [len(WRITTEN), len(WRITTEN) // 2])
def test_unreadable_record_still_names_its_sandbox(length: int) -> None:
    raw = WRITTEN[:length].replace(b'"version": 3', b'"version": 9')

    assert find_lost("c0ffee@eth0.json", raw) == LostRecord("c0ffee", "eth0", RECORD.netns, RECORD.pod)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0" * 100,
        b'"netns": {}',
        b'"netns": {"path": 1',
        b'"netns": {"path": "/x", "dev": 1, "inod": 2}',
        b'"pod": {"a": 1}',
    ],
    ids=repr,
)
def test_record_of_which_only_the_files_name_is_readable_names_the_container(raw: bytes) -> None:
    assert find_lost("c0ffee@eth0.json", raw) == LostRecord("c0ffee", "eth0", None, SandboxPod("", "", ""))


@pytest.mark.parametrize(
    "raw",
    [
        b'"netns": {"path": ["/x"], "dev": 1, "inode": 2}',
        b'"netns": {"path": "/x", "dev": "1", "inode": 2}',
        b'"netns": {"path": "/x", "dev": 1, "inode": 2}, "pod": {"namespace": 1, "name": "a", "uid": "b"}',
    ],
    ids=["path", "number", "pod"],
)
def test_part_with_values_of_another_type_is_not_used(raw: bytes) -> None:
    found = find_lost("c0ffee@eth0.json", raw)

    assert found is not None
    assert None in (found.netns, found.pod.uid or None)


@pytest.mark.parametrize(
    "name", ["README", "@eth0.json", "a@.json", "../x@eth0.json", "a@b/c.json", "a b@eth0.json", f"a@{'x' * 16}"]
)
def test_file_whose_name_is_no_container_id_names_no_sandbox(name: str) -> None:
    assert find_lost(name, WRITTEN) is None


@given(st.text(), st.binary())
def test_find_lost_raises_nothing(name: str, raw: bytes) -> None:
    find_lost(name, raw)
    find_lost("c0ffee@eth0.json", b'{"netns": {' + raw)
