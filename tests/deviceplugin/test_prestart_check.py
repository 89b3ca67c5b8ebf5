"""The last check before a container starts: its VFs are attached to its pod."""

import re

import pytest

from deviceplugin.prestart_check import Holders, refusal
from vf.pci_address import PciAddress
from vf.table import Owner

DEVICE = "0000:03:00.1"
OWNER = Owner("c0ffee", "eth0", "uid-1")
NAMELESS = Owner("c0ffee", "eth0", "")


def ask(owner: Owner | None, holders: Holders, device: str = DEVICE) -> str | None:
    attached = {PciAddress.parse(DEVICE): owner}
    return refusal([device], attached.get, {device: holders})


STARTS = {
    "the pod that kubelet allocated it to": (OWNER, Holders(frozenset({"uid-1"}))),
    "no checkpoint": (OWNER, Holders(why_unknown="version 2 is not understood")),
    "a runtime that passes no UID": (NAMELESS, Holders(frozenset({"uid-1"}))),
}


@pytest.mark.parametrize(("owner", "holders"), STARTS.values(), ids=STARTS.keys())
def test_refusal_is_none_when_the_vf_is_attached_to(owner: Owner, holders: Holders) -> None:
    assert ask(owner, holders) is None


REFUSED = {
    "not attached": (None, Holders(frozenset({"uid-1"})), "VF 0000:03:00.1 is not attached .* delete the pod"),
    "not attached, no checkpoint": (
        None,
        Holders(why_unknown="version 2 is not understood"),
        "is not attached .* cannot be read: version 2 is not understood.* only an init container has.* is no init container",
    ),
    "attached to another pod": (OWNER, Holders(frozenset({"uid-2"})), "c0ffee of pod UID uid-1, .* to uid-2"),
    "given to no pod": (OWNER, Holders(), "kubelet gave it to no pod"),
}


@pytest.mark.parametrize(("owner", "holders", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refusal_says_why_and_what_to_do_when(owner: Owner | None, holders: Holders, words: str) -> None:
    assert re.search(words, ask(owner, holders) or "none")


def test_refusal_names_a_device_whose_id_is_no_pci_address() -> None:
    assert "device 'GPU-1' is not one of Railnet's" in (
        ask(OWNER, Holders(why_unknown="version 2 is not understood"), "GPU-1") or "none"
    )


def test_refusal_is_about_the_first_device_that_is_not_attached() -> None:
    other = "0000:03:00.2"

    words = refusal(
        [DEVICE, other],
        {PciAddress.parse(DEVICE): OWNER}.get,
        {
            DEVICE: Holders(why_unknown="version 2 is not understood"),
            other: Holders(why_unknown="version 2 is not understood"),
        },
    )

    assert (words or "none").startswith(f"VF {other} is not attached")
