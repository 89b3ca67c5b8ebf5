"""Kubelet's device checkpoint, in every form kubelet writes it and in forms it never would."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.kubelet import checkpoint

REPOSITORY = Path(__file__).resolve().parents[3]
RAIL = "rdma/ib_vf"


def an_entry(
    pod_uid: str = "uid-1", container: str = "main", resource: str = RAIL, ids: object = None
) -> dict[str, object]:
    return {
        "PodUID": pod_uid,
        "ContainerName": container,
        "ResourceName": resource,
        "DeviceIDs": ids,
        "AllocResp": "CgA=",
    }


def a_document(*entries: object) -> bytes:
    data = {"PodDeviceEntries": list(entries), "RegisteredDevices": {RAIL: ["0000:03:00.1"]}}
    return json.dumps({"Data": data, "Checksum": 1540412521}).encode()


UNDERSTOOD = {
    "a map by NUMA node": ([an_entry(ids={"0": ["a"], "1": ["b"]})], {"uid-1": {RAIL: {"a", "b"}}}),
    "a map with no NUMA node": ([an_entry(ids={"-1": ["a"]})], {"uid-1": {RAIL: {"a"}}}),
    "a list": ([an_entry(ids=["b", "a"])], {"uid-1": {RAIL: {"a", "b"}}}),
    "null ids": ([an_entry(ids=None)], {}),
    "a NUMA node with null": ([an_entry(ids={"0": None, "1": ["a"]})], {"uid-1": {RAIL: {"a"}}}),
    "an init container with the same id": (
        [an_entry(container="init", ids=["a"]), an_entry(container="main", ids=["a", "b"])],
        {"uid-1": {RAIL: {"a", "b"}}},
    ),
    "several pods and resources": (
        [an_entry(ids=["a"]), an_entry(resource="nvidia.com/gpu", ids=["g"]), an_entry("uid-2", ids=["b"])],
        {"uid-1": {RAIL: {"a"}, "nvidia.com/gpu": {"g"}}, "uid-2": {RAIL: {"b"}}},
    ),
    "unknown keys": ([an_entry(ids=["a"]) | {"New": [1]}], {"uid-1": {RAIL: {"a"}}}),
    "no entries": ([], {}),
}


@pytest.mark.parametrize(("entries", "expected"), UNDERSTOOD.values(), ids=UNDERSTOOD.keys())
def test_parse_unites_the_devices_of_each_pod(entries: list[object], expected: checkpoint.Entries) -> None:
    assert checkpoint.parse(a_document(*entries)) == expected


def test_parse_takes_null_for_no_entries() -> None:
    assert checkpoint.parse(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":7}') == {}


NOT_UNDERSTOOD = {
    "empty file": (b"", "not JSON"),
    "cut off": (a_document(an_entry(ids=["a"]))[:-9], "not JSON"),
    "not text": (b"\xff\xfe\x00\x01\xff", "not JSON"),
    "nested deeply": (b"[" * 200_000, "nested too deeply"),
    "a list": (b"[]", "it is of type list, not an object"),
    "no Data": (b"{}", "its Data is missing"),
    "Data of another type": (b'{"Data":[]}', "its Data is of type list"),
    "no entries key": (b'{"Data":{}}', "no PodDeviceEntries"),
    "entries of another type": (b'{"Data":{"PodDeviceEntries":{}}}', "not a list"),
    "entry of another type": (a_document("x"), "an entry of its PodDeviceEntries is of type str"),
    "no pod UID": (a_document(an_entry(ids=["a"]) | {"PodUID": None}), "PodUID is missing"),
    "empty pod UID": (a_document(an_entry(pod_uid="", ids=["a"])), "PodUID is empty"),
    "resource of another type": (a_document(an_entry(ids=["a"]) | {"ResourceName": 3}), "ResourceName is of type int"),
    "ids in a string": (a_document(an_entry(ids="a")), "DeviceIDs is neither"),
    "id of another type": (a_document(an_entry(ids=[1])), "DeviceIDs is neither"),
    "map of strings": (a_document(an_entry(ids={"0": "a"})), "DeviceIDs is neither"),
}


@pytest.mark.parametrize(("raw", "words"), NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD.keys())
def test_parse_says_what_it_does_not_understand(raw: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checkpoint.parse(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["Data", "PodDeviceEntries", "DeviceIDs", "0"]), inner)
    ),
)


@pytest.mark.slow
@given(JSON)
def test_parse_raises_nothing_but_value_error(document: object) -> None:
    try:
        parsed = checkpoint.parse(json.dumps(document).encode())
    except ValueError:
        return
    assert isinstance(parsed, dict)


def test_devices_are_sorted_and_only_of_the_resources_asked_for() -> None:
    entries = {"uid-1": {"b/x": {"2", "1"}, "a/x": {"3"}, "c/x": {"4"}}, "uid-2": {"a/x": {"5"}}}

    assert checkpoint.devices(entries, "uid-1", {"a/x", "b/x"}) == [("a/x", "3"), ("b/x", "1"), ("b/x", "2")]


def test_devices_are_none_when_the_pod_is_not_listed() -> None:
    assert checkpoint.devices({"uid-1": {RAIL: {"a"}}}, "uid-2", {RAIL}) == []


def test_holders_are_the_pods_with_the_device_under_this_resource() -> None:
    entries = {"uid-1": {RAIL: {"a"}}, "uid-2": {RAIL: {"b"}}, "uid-3": {"other/x": {"a"}}}

    assert checkpoint.holders(entries, RAIL, "a") == {"uid-1"}


def test_checkpoint_imports_nothing_before_it_parses() -> None:
    code = "import sys; before = set(sys.modules); import railnet.kubelet.checkpoint; print(sorted(set(sys.modules) - before))"

    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); {code}"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == "['railnet', 'railnet.kubelet', 'railnet.kubelet.checkpoint']"
