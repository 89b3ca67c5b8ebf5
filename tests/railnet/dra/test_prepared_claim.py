"""The record of a prepared claim survives its encoding, and a changed record is not believed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.allocation import Allocation
from railnet.dra.claim import AllocatedClaim, AllocatedRequest, ClaimIdentity
from railnet.dra.prepared_claim import (
    PreparedClaim,
    PreparedRequest,
    UnreadableClaim,
    _digest,
    decode,
    encode,
    is_uid,
)
from tests.railnet.dra.claims import FIRST, IDENTITY, SECOND, a_prepared_claim, a_request
from tests.railnet.vf.builders import pci_addresses

allocations = st.builds(
    Allocation, st.lists(st.text(), max_size=2).map(tuple), st.dictionaries(st.text(), st.text(), max_size=2)
)
requests = st.builds(PreparedRequest, st.text(), st.lists(pci_addresses, max_size=2).map(tuple), allocations)
uids = st.text("abc019-", min_size=1, max_size=9).filter(is_uid)
claims = st.builds(
    PreparedClaim,
    st.builds(ClaimIdentity, st.text(), st.text(), uids),
    st.text(),
    st.lists(requests, max_size=3).map(tuple),
)


@given(claims)
def test_decode_returns_what_was_encoded(claim: PreparedClaim) -> None:
    assert decode(encode(claim)) == claim


def changed(**changes: object) -> bytes:
    """Return a record with other values and the right digest."""
    body = json.loads(encode(a_prepared_claim()))
    body.pop("sha256")
    body |= changes
    return json.dumps({**body, "sha256": _digest(body)}).encode()


UNREADABLE = {
    "empty": (b"", "JSONDecodeError"),
    "cut short": (encode(a_prepared_claim())[:-20], "JSONDecodeError"),
    "nested deeply": (b"[" * 100_000, "RecursionError"),
    "a list": (b"[]", "TypeError"),
    "changed": (encode(a_prepared_claim()).replace(b"train-vf", b"train-vg"), "its SHA-256 is another"),
    "a later version": (changed(version=2), "version 2; this Railnet reads 1"),
    "a path as UID": (changed(uid="../x"), "is no UID"),
    "a number as name": (changed(name=7), "is where text should be"),
    "a VF that is none": (
        changed(requests=[{"name": "a", "vfs": ["x"], "device_nodes": [], "envs": {}}]),
        "PCI address",
    ),
}


@pytest.mark.parametrize(("raw", "words"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_decode_says_what_is_unreadable(raw: bytes, words: str) -> None:
    with pytest.raises(UnreadableClaim, match=words):
        decode(raw)


def test_claim_fits_the_same_choice_in_another_order() -> None:
    prepared = a_prepared_claim(a_request("a", FIRST), a_request("b", SECOND))

    def allocated(*requests: AllocatedRequest) -> AllocatedClaim:
        return AllocatedClaim(IDENTITY, requests, frozenset())

    assert prepared.vfs == (FIRST, SECOND)
    assert prepared.fits(allocated(AllocatedRequest("b", (SECOND,)), AllocatedRequest("a", (FIRST,))))
    assert not prepared.fits(allocated(AllocatedRequest("b", (FIRST,)), AllocatedRequest("a", (SECOND,))))
    assert not prepared.fits(allocated(AllocatedRequest("a", (FIRST,))))


@pytest.mark.parametrize("text", ["", "a/b", ".a", "a b", "-a", "a" * 81, "a\n"])
def test_what_could_not_be_part_of_a_files_name_is_no_uid(text: str) -> None:
    assert not is_uid(text)
