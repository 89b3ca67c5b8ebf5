"""The last check before a container starts: its VFs are attached to its pod."""

import re

import pytest

from deviceplugin.prestart_attachment_check import NOT_ASKED, Holders, HostNetworkPods, refusal, without_attachment
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner

DEVICE = "0000:03:00.1"
OWNER = Owner("c0ffee", "eth0", "uid-1")
NAMELESS = Owner("c0ffee", "eth0", "")


def ask(
    owner: Owner | None, holders: Holders, device: str = DEVICE, on_host: HostNetworkPods = NOT_ASKED
) -> str | None:
    attached = {PciAddress.parse(DEVICE): owner}
    return refusal([device], attached.get, {device: holders}, on_host)


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


ON_HOST = HostNetworkPods(frozenset({"uid-1"}))
HELD = Holders(frozenset({"uid-1"}))


def test_container_on_the_hosts_network_starts_with_a_vf_that_is_not_attached() -> None:
    assert ask(None, HELD, on_host=ON_HOST) is None


REFUSED_ON_HOST = {
    "of another pod": (None, Holders(frozenset({"uid-2"})), "is not attached to a pod"),
    "of two pods": (None, Holders(frozenset({"uid-1", "uid-2"})), "is not attached to a pod"),
    "of no pod": (None, Holders(), "is not attached to a pod"),
    "of an unknown pod": (None, Holders(why_unknown="version 2 is not understood"), "cannot be read: version 2"),
    "that is attached to another pod": (Owner("c0ffee", "eth0", "uid-2"), HELD, "c0ffee of pod UID uid-2"),
}


@pytest.mark.parametrize(("owner", "holders", "words"), REFUSED_ON_HOST.values(), ids=REFUSED_ON_HOST.keys())
def test_container_on_the_hosts_network_is_refused_a_vf(owner: Owner | None, holders: Holders, words: str) -> None:
    assert words in (ask(owner, holders, on_host=ON_HOST) or "none")


def test_refusal_says_why_the_network_of_the_pod_is_not_known() -> None:
    words = ask(None, HELD, on_host=HostNetworkPods(why_unknown="the runtime hangs"))

    assert (words or "none").endswith("Whether the pod is on the host's network is not known: the runtime hangs")


def test_runtime_is_asked_only_about_the_one_pod_that_has_a_vf_without_attachment() -> None:
    free, taken, shared, unknown = (f"0000:03:00.{number}" for number in range(1, 5))
    holders = {
        free: Holders(frozenset({"uid-1"})),
        taken: Holders(frozenset({"uid-2"})),
        shared: Holders(frozenset({"uid-3", "uid-4"})),
        unknown: Holders(why_unknown="version 2 is not understood"),
        "GPU-1": Holders(frozenset({"uid-5"})),
    }

    asked = without_attachment(list(holders), {PciAddress.parse(taken): OWNER}.get, holders)

    assert asked == {"uid-1"}
