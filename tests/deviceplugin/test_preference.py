"""The preferred VFs for a container."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.devices import OfferedVf
from deviceplugin.preference import prefer
from tests.deviceplugin.builders import a_vf

# Two NUMA nodes with two rails each, three VFs a rail: "a" and "b" are PFs of node 0, "c" and "d" of node 1.
RAILS = ("a", "b", "c", "d")


def identity(name: str) -> str:
    """Return the device id of a VF that these tests call "a1"."""
    return f"0000:{0x10 + RAILS.index(name[0]):02x}:00.{name[1]}"


def an_offer(name: str, numa_nodes: tuple[int, ...] = (0, 0, 1, 1), reason: str | None = None) -> OfferedVf:
    rail = RAILS.index(name[0])
    return OfferedVf(a_vf(identity(name), numa_node=numa_nodes[rail]), rail, reason)


NAMES = [f"{rail}{number}" for rail in RAILS for number in (1, 2, 3)]
EVERYTHING = [an_offer(name) for name in NAMES]


def preferred(available: str, settled: str, size: int, offered: list[OfferedVf] = EVERYTHING) -> str:
    """Return the preferred VFs, with the names of this module for input and output."""
    ids = {identity(name): name for name in NAMES}
    answer = prefer(offered, [identity(name) for name in available.split()], list(map(identity, settled.split())), size)
    return " ".join(ids[id_] for id_ in answer)


ALL = " ".join(NAMES)

CASES = {
    "one": (ALL, "", 1, "a1"),
    "two on one NUMA node": (ALL, "", 2, "a1 b1"),
    "all rails": (ALL, "", 4, "a1 b1 c1 d1"),
    "another node's rails before a second VF of a PF": (ALL, "", 3, "a1 b1 c1"),
    "more than rails": (ALL, "", 6, "a1 a2 b1 b2 c1 d1"),
    "a NUMA node that has both": ("a1 a2 c1 d1", "", 2, "c1 d1"),
    "doubled where kubelet offers one NUMA node": ("c1 c2 c3 d1 d2 d3", "", 4, "c1 c2 d1 d2"),
    "doubled where one rail is free": ("b1 b2 b3", "", 2, "b1 b2"),
    "order of rails, not of the available ids": ("d1 c2 b3 a2", "", 4, "a2 b3 c2 d1"),
    "a settled device": (ALL, "c2", 2, "c2 d1"),
    "a settled device's rail last": (ALL, "a2", 4, "a2 b1 c1 d1"),
    "settled devices only": (ALL, "a1 a2", 2, "a1 a2"),
    "more settled than wanted": (ALL, "a1 a2 b1", 2, "a1 a2 b1"),
    "the rail that fewer pods use": ("a2 a3 b1 b2 b3 c1 c2 c3 d1 d2 d3", "", 1, "b1"),
    "the NUMA node whose rail fewer pods use": ("a2 a3 b2 b3 c1 c2 c3 d2 d3", "", 1, "c1"),
    "the rail that fewer pods use on the node": ("a2 a3 b1 b2 b3", "", 1, "b1"),
    "fewer than wanted": ("a1 d1", "", 4, "a1 d1"),
    "none": (ALL, "", 0, ""),
    "none available": ("", "", 2, ""),
}


@pytest.mark.parametrize(("available", "settled", "size", "answer"), CASES.values(), ids=CASES.keys())
def test_preferred_is(available: str, settled: str, size: int, answer: str) -> None:
    assert preferred(available, settled, size) == answer


def test_vfs_without_a_numa_node_come_last() -> None:
    offered = [an_offer(name, numa_nodes=(-1, -1, 1, 1)) for name in NAMES]

    assert preferred(ALL, "", 2, offered) == "c1 d1"


def test_rails_come_in_order_if_no_pf_has_a_numa_node() -> None:
    offered = [an_offer(name, numa_nodes=(-1, -1, -1, -1)) for name in NAMES]

    assert preferred(ALL, "", 3, offered) == "a1 b1 c1"


def test_unhealthy_vf_does_not_count_as_used() -> None:
    offered = [an_offer(name, reason="no driver" if name == "a1" else None) for name in NAMES]

    assert preferred(ALL.removeprefix("a1 "), "", 1, offered) == "a2"


def test_id_that_is_not_offered_is_never_chosen() -> None:
    assert prefer(EVERYTHING[:1], ["0000:99:00.1", "nonsense", EVERYTHING[0].id], [], 3) == [EVERYTHING[0].id]


def test_settled_id_that_is_no_longer_offered_stays_and_counts() -> None:
    answer = prefer(EVERYTHING, [offer.id for offer in EVERYTHING], ["0000:99:00.1"], 2)

    assert answer == [EVERYTHING[0].id, "0000:99:00.1"]


@pytest.mark.slow
@given(
    available=st.sets(st.sampled_from([offer.id for offer in EVERYTHING])),
    data=st.data(),
    size=st.integers(0, 12),
)
def test_no_rail_gets_two_vfs_more_than_a_rail_with_a_free_vf(
    available: set[str], data: st.DataObject, size: int
) -> None:
    settled = data.draw(st.sets(st.sampled_from(sorted(available)), max_size=size) if available else st.just(set()))

    answer = prefer(EVERYTHING, available, settled, size)

    chosen = set(answer)
    rails = {offer.id: offer.rail for offer in EVERYTHING}
    fresh = Counter(rails[id_] for id_ in chosen - settled)
    total = Counter(rails[id_] for id_ in chosen)
    free = {rails[id_] for id_ in available - chosen}
    assert settled <= chosen <= available
    assert len(chosen) == len(answer) == min(max(size, len(settled)), len(available))
    assert answer == sorted(answer, key=lambda id_: (rails[id_], id_))
    assert all(total[rail] <= total[other] + 1 for rail in fresh for other in free)
    assert answer == prefer(EVERYTHING, sorted(available, reverse=True), settled, size)


def test_vf_without_a_rail_is_never_chosen_also_if_kubelet_asks_for_it() -> None:
    unsure = OfferedVf(a_vf("0000:99:00.1"), None, "its card has moved")
    sure = OfferedVf(a_vf("0000:03:00.1"), 0, None)

    assert prefer([sure, unsure], [sure.id, unsure.id], [], 2) == [sure.id]
    assert prefer([sure, unsure], [sure.id], [unsure.id], 2) == [sure.id, unsure.id]
