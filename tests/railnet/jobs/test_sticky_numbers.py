"""Numbers that stay with a rank: which one a rank gets, how the number makes addresses, and what holds in every order of events."""

from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from railnet.jobs.sticky_numbers import StickyPod, addresses, assign, number_of, numbers
from railnet.vf.permitted_networks import STICKY_ANNOTATION, Limit, Network, Networks, StickyIpam

SMALL = StickyIpam(ip_network("10.58.0.0/29"))
RAILS = StickyIpam(ip_network("10.58.0.0/16"), 3)
IPV6 = StickyIpam(ip_network("fd58::/64"), 2)


def member(rank: str, number: int | None = None, holder: str = "mnist", **fields: Any) -> StickyPod[str]:
    return StickyPod(holder, rank, fields.pop("pod", f"{holder}-{rank}"), number, **fields)


def test_neighbours_in_rank_are_neighbours_in_address() -> None:
    members = [member(f"worker-{rank}") for rank in (10, 2, 0)] + [member("ps-0")]

    found = assign(numbers(RAILS), {}, members).numbers["mnist"]

    assert found == {"ps-0": 1, "worker-0": 2, "worker-2": 3, "worker-10": 4}


@pytest.mark.parametrize(
    ("ipam", "vfs", "expected"),
    [
        (SMALL, 1, "10.58.0.6/29"),
        (RAILS, 1, "10.58.0.6/18"),
        (RAILS, 3, "10.58.0.6/18,10.58.64.6/18,10.58.128.6/18"),
        (IPV6, 2, "fd58::6/65,fd58::8000:0:0:6/65"),
    ],
)
def test_node_takes_the_addresses_of_a_number_and_the_number_is_read_back(
    ipam: StickyIpam, vfs: int, expected: str
) -> None:
    found = addresses(ipam, 6, vfs)
    networks = Networks({"a": Network("a", ipam=ipam)}, {"*": Limit(("a",))})

    assert found == expected
    annotations = {STICKY_ANNOTATION: "true", "railnet.io/net1-ip": found}
    assert ",".join(map(str, networks.choose("ml", annotations, vfs).static)) == found
    assert number_of(ipam, found) == 6


@pytest.mark.parametrize(
    "annotation", ["", "x", "10.58.0.0/29", "10.58.0.7/29", "10.57.0.1/29", "fd58::1/64", "10.58.1.1"]
)
def test_annotation_that_names_no_address_of_the_range_has_no_number(annotation: str) -> None:
    assert number_of(SMALL, annotation) is None


def test_rank_whose_pod_is_made_again_has_the_same_number() -> None:
    first = assign(numbers(SMALL), {}, [member("worker-0"), member("worker-1")])
    gone = assign(numbers(SMALL), first.numbers, [member("worker-1", 2), member("worker-2")])
    again = assign(numbers(SMALL), gone.numbers, [member("worker-0", pod="another")])

    assert again.given == {member("worker-0", pod="another"): 1}
    assert again.numbers["mnist"] == {"worker-0": 1, "worker-1": 2, "worker-2": 3}


def test_lost_numbers_come_back_from_the_pods() -> None:
    found = assign(numbers(SMALL), {}, [member("worker-0"), member("worker-1", 1), member("worker-2", 5)])

    assert found.numbers["mnist"] == {"worker-0": 2, "worker-1": 1, "worker-2": 5}


def test_number_that_a_pod_has_wrongly_is_no_other_ranks_while_the_pod_lives() -> None:
    found = assign(numbers(SMALL), {"mnist": {"worker-0": 4}}, [member("worker-0", 1), member("worker-1")])

    assert found.numbers["mnist"] == {"worker-0": 4, "worker-1": 2}


def test_second_pod_of_a_rank_waits_for_the_first() -> None:
    old, new = member("worker-0", 1, leaving=True, pod="old"), member("worker-0", pod="a-new")
    before = {"mnist": {"worker-0": 1}}

    both, later = assign(numbers(SMALL), before, [old, new]), assign(numbers(SMALL), before, [new])

    assert (both.given, both.waiting) == ({old: 1}, [(new, old)])
    assert (later.given, later.waiting) == ({new: 1}, [])


def test_pods_wait_when_all_numbers_are_assigned() -> None:
    members = [member(f"worker-{rank}") for rank in range(8)]

    found = assign(numbers(SMALL), {}, members)

    assert sorted(found.given.values()) == [1, 2, 3, 4, 5, 6]
    assert found.short == members[6:]


class Life(RuleBasedStateMachine):
    """Pods of three jobs come, are annotated, leave and are made again; jobs end; the leader may change at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[str, dict[str, int]] = {}
        self.pods: dict[str, StickyPod[str]] = {}
        self.first: dict[tuple[str, str], int] = {}
        self.count = 0

    @rule(holder=st.sampled_from("abc"), rank=st.integers(0, 3))
    def come(self, holder: str, rank: int) -> None:
        self.count += 1
        self.pods[f"p{self.count}"] = member(f"worker-{rank}", holder=holder, pod=f"p{self.count}")

    @rule(pick=st.integers(0), leaving=st.booleans())
    def go(self, pick: int, leaving: bool) -> None:
        if self.pods:
            name = sorted(self.pods)[pick % len(self.pods)]
            before = self.pods.pop(name)
            if leaving and not before.leaving:
                self.pods[name] = StickyPod(before.holder, before.rank, name, before.number, leaving=True)

    @rule(annotated=st.integers(0, 8))
    def look(self, annotated: int) -> None:
        """Assign; only the first pods are annotated before the leader ends."""
        found = assign(numbers(SMALL), self.table, self.pods.values())
        self.table = found.numbers
        for one, number in list(found.given.items())[:annotated]:
            self.pods[one.pod] = StickyPod(one.holder, one.rank, one.pod, number, one.leaving)
        for holder, ranks in self.table.items():
            for rank, number in ranks.items():
                assert self.first.setdefault((holder, rank), number) == number
        waiting = {one.pod for one, _ in found.waiting} | {one.pod for one in found.short}
        assert waiting.isdisjoint(one.pod for one in found.given)
        assert not found.short or len(self.first) == len(numbers(SMALL))

    @rule(holder=st.sampled_from("abc"))
    def end(self, holder: str) -> None:
        """A job's root and its pods are gone: its numbers are released."""
        self.pods = {name: one for name, one in self.pods.items() if one.holder != holder}
        self.table.pop(holder, None)
        self.first = {key: number for key, number in self.first.items() if key[0] != holder}

    @invariant()
    def no_two_pods_have_one_address(self) -> None:
        given = [one.number for one in self.pods.values() if one.number is not None]
        assert len(given) == len(set(given))


TestLife = pytest.mark.slow(Life.TestCase)
