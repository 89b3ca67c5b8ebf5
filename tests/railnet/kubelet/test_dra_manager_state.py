"""Kubelet's record of prepared claims, in the form that kubelet writes and in forms that it never would."""

import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.kubelet import dra_manager_state
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.kubelet.dra_manager_state import PreparedDevices, of_pod, parse, surely_names_none
from tests.railnet.kubelet.dra_state import a_claim, a_data, a_file, a_state

REPOSITORY = Path(__file__).resolve().parents[3]
FIRST, SECOND = "pci-0000-03-00-1", "pci-0000-03-00-2"
# As kubelet 1.37 wrote it for a claim of another driver.
OF_KUBELET = (
    rb'{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":null}",'
    rb'"Checksum":%d}'
)


def values(claims: tuple[PreparedDevices, ...]) -> list[tuple[Any, ...]]:
    return [(claim.claim_uid, claim.namespace, claim.name, claim.pod_uids, claim.devices) for claim in claims]


def test_parse_returns_the_claims_of_the_driver() -> None:
    other = a_claim("claim-2", DriverState={"gpu.example.com": {"Devices": []}})
    both = a_claim("claim-3", ("uid-2", "uid-3"), (SECOND, FIRST, FIRST))

    assert values(parse(a_state(a_claim(), other, both), DRIVER)) == [
        ("claim-1", "ml", "train-vf", frozenset({"uid-1"}), (FIRST,)),
        ("claim-3", "ml", "train-vf", frozenset({"uid-2", "uid-3"}), (FIRST, SECOND)),
    ]


@pytest.mark.parametrize("devices", [None, []])
def test_claim_has_no_devices_before_the_driver_has_answered(devices: object) -> None:
    (claim,) = parse(a_state(a_claim(DriverState={DRIVER: {"Devices": devices}})), DRIVER)

    assert (claim.devices, str(claim)) == ((), "claim ml/train-vf")


@pytest.mark.parametrize("missing", ["PodUIDs", "DriverState"])
def test_what_go_writes_as_null_is_empty(missing: str) -> None:
    claims = parse(a_state(a_claim(**{missing: None})), DRIVER)

    assert [claim.pod_uids for claim in claims] == ([frozenset()] if missing == "PodUIDs" else [])


def test_parse_takes_null_for_no_claims() -> None:
    text = json.loads(OF_KUBELET % 0)["Data"]

    assert parse(OF_KUBELET % zlib.crc32(text.encode()), DRIVER) == ()


def test_claims_of_a_pod_are_those_that_name_it() -> None:
    claims = parse(a_state(a_claim(), a_claim("claim-2", ("uid-1", "uid-2")), a_claim("claim-3", ())), DRIVER)

    assert [claim.claim_uid for claim in of_pod(claims, "uid-1")] == ["claim-1", "claim-2"]
    assert of_pod(claims, "") == ()


NOT_UNDERSTOOD = {
    "empty file": (b"", "not JSON"),
    "cut off": (a_state(a_claim())[:-9], "not JSON"),
    "not text": (b"\xff\xfe\x00\x01\xff", "not JSON"),
    "nested deeply": (b"[" * 200_000, "nested too deeply"),
    "a list": (b"[]", "it is of type list, not an object"),
    "no Data": (b"{}", "its Data is missing, not a text"),
    "Data of another type": (b'{"Data":{}}', "its Data is of type dict, not a text"),
    "another checksum": (a_state(a_claim()).replace(b"train-vf", b"train-vg"), "its checksum is not that of its Data"),
    "no checksum": (json.dumps({"Data": a_data()}).encode(), "its checksum is not"),
    "checksum of another type": (json.dumps({"Data": "", "Checksum": False}).encode(), "its checksum is not"),
    "Data that is no JSON": (a_file("{"), "it is not JSON"),
    "Data that is nested deeply": (a_file("[" * 100_000), "nested too deeply"),
    "half a surrogate pair": (
        json.dumps({"Data": "\ud800", "Checksum": zlib.crc32(b"\xed\xa0\x80")}).encode(),
        "not JSON",
    ),
    "another version": (
        a_file(a_data(apiVersion="checkpoint.dra.kubelet.k8s.io/v2")),
        "'checkpoint.dra.kubelet.k8s.io/v2'",
    ),
    "another kind": (a_file(a_data(kind="Pod")), "a 'Pod' of"),
    "claims of another type": (
        a_file(a_data(ClaimInfoStateList={})),
        "its ClaimInfoStateList is of type dict, not a list",
    ),
    "a claim of another type": (a_state("x"), "an entry of its ClaimInfoStateList is of type str"),
    "drivers of another type": (a_state(a_claim(DriverState=[1])), "a claim's DriverState is of type list"),
    "a driver of another type": (a_state(a_claim(DriverState={DRIVER: 1})), "a driver's state is of type int"),
    "devices of another type": (a_state(a_claim(DriverState={DRIVER: {"Devices": {}}})), "Devices is of type dict"),
    "a device of another type": (a_state(a_claim(DriverState={DRIVER: {"Devices": [1]}})), "a device is of type int"),
    "a device without a name": (a_state(a_claim(DriverState={DRIVER: {"Devices": [{}]}})), "a DeviceName is missing"),
    "no claim UID": (a_state(a_claim(ClaimUID="")), "a ClaimUID is empty"),
    "no claim name": (a_state(a_claim(ClaimName=None)), "a ClaimName is missing"),
    "pods of another type": (a_state(a_claim(PodUIDs=["uid-1"])), "a claim's PodUIDs is of type list"),
}


@pytest.mark.parametrize(("raw", "words"), NOT_UNDERSTOOD.values(), ids=NOT_UNDERSTOOD.keys())
def test_parse_says_what_it_does_not_understand(raw: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        parse(raw, DRIVER)

    assert "dra_manager_state is not understood" in str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["ClaimUID", "PodUIDs", "DriverState", "Devices", DRIVER]), inner)
    ),
)


@pytest.mark.slow
@given(st.lists(JSON))
def test_parse_raises_nothing_but_value_error(claims: list[object]) -> None:
    try:
        parsed = parse(a_state(*claims), DRIVER)
    except ValueError:
        return
    assert isinstance(parsed, tuple)


@pytest.mark.parametrize(
    ("raw", "pod_uid", "expected"),
    [
        (b'{"claims": ["uid-2 rdma.railnet.io"]}', "uid-1", True),
        (b'{"claims": ["uid-1 gpu.example.com"]}', "uid-1", True),
        (b'{"claims": ["uid-1 gpu.example.com"]}', "", True),
        (b'{"claims": ["uid-1 rdma.railnet.io"]}', "uid-1", False),
        (b'{"claims": ["uid-2 rdma.railnet.io"]}', "", False),
        (b'{"claims": ["uid-2 rdma', "uid-1", False),
    ],
    ids=["another pod", "another driver", "another driver, no UID", "both", "no UID", "cut short"],
)
def test_file_of_another_format_surely_names_none(raw: bytes, pod_uid: str, expected: bool) -> None:
    assert surely_names_none(raw, pod_uid, DRIVER) is expected


def test_dra_manager_state_imports_nothing_before_it_parses() -> None:
    code = f"import sys; before = set(sys.modules); import {dra_manager_state.__name__}; print(sorted(set(sys.modules) - before))"

    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); {code}"],
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == "['railnet', 'railnet.kubelet', 'railnet.kubelet.dra_manager_state']"
