"""The formulas of `docs/training/dns.md` agree with a count, member by member, of what Kubernetes and Railnet write."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.railnet.jobs import dns_cost
from tests.railnet.jobs.dns_cost import SLICE, Cost, of_a_service_for_each_task, of_one_service
from tests.railnet.jobs.pages import linear

MEMBERS = st.integers(1, 450)
Slices = list[list[int]]
"""The members in each slice."""


class Written:
    """Counts the writes of Services and slices, each of which is one event for each watcher."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.slices: Slices = []

    def service(self) -> None:
        self.counts["services"] += 1

    def slice(self, number: int, members: list[int]) -> None:
        self.slices[number:] = [members, *self.slices[number + 1 :]]
        self.counts.update(writes=1, sent=len(members))

    @property
    def events(self) -> int:
        return self.counts["services"] + self.counts["writes"]


def records(services: int, slices: Slices) -> tuple[int, int]:
    """Return names and records: each Service's name with all its addresses, and each endpoint's name with one."""
    endpoints = sum(map(len, slices))
    return services + endpoints, 2 * endpoints


@given(MEMBERS)
def test_one_service_with_all_addresses_at_once(n: int):
    written = Written()
    written.service()
    members = list(range(n))
    for number, first in enumerate(range(0, n, SLICE)):
        written.slice(number, members[first : first + SLICE])

    check(of_one_service(n), written, bound=0)


@given(MEMBERS)
def test_one_service_with_each_address_alone(n: int):
    written = Written()
    written.service()
    for member in range(n):
        number = member // SLICE
        written.slice(number, [*(written.slices[number] if number < len(written.slices) else []), member])

    check(of_one_service(n), written, bound=1)


@pytest.mark.slow
@pytest.mark.parametrize(("separate", "bound"), [(False, 0), (True, 1)], ids=["with readiness", "before readiness"])
@given(n=MEMBERS)
def test_a_service_for_each_task(separate: bool, bound: int, n: int):
    written = Written()
    for member in range(n):
        written.service()
        written.slice(member, [])
    for member in range(n):
        if separate:
            written.slice(member, [member])
        written.slice(member, [member])

    check(of_a_service_for_each_task(n), written, bound)


def check(cost: Cost, written: Written, bound: int) -> None:
    services, slices = written.counts["services"], written.slices
    assert (cost.services, cost.slices) == (services, len(slices))
    assert (cost.names, cost.records) == records(services, slices)
    assert (cost.events[bound], cost.sent[bound]) == (written.events, written.counts["sent"])
    assert max(map(len, slices)) <= SLICE


@given(st.integers(1, 60))
def test_queries_are_counted_pair_by_pair(n: int):
    asked = [
        (member // dns_cost.MEMBERS_OF_A_NODE, other) for member in range(n) for other in range(n) if other != member
    ]
    everyones = {(node, name) for node in range(dns_cost.nodes(n)) for name in range(n)}

    assert dns_cost.all_to_all(n) == len(asked) * dns_cost.QUERIES_OF_A_LOOKUP
    assert set(asked) <= everyones
    assert dns_cost.to_coredns_with_node_caches(n) == len(everyones) * dns_cost.QUERIES_OF_A_LOOKUP


def test_look_up_of_a_member_asks_for_three_names_of_two_kinds():
    """As the resolver does: a name with fewer dots than `ndots` is first tried with each suffix of kubelet's search list."""
    name, suffixes, ndots = (
        "mnist-worker-0.mnist-net1.ml.svc",
        ("ml.svc.cluster.local", "svc.cluster.local", "cluster.local"),
        5,
    )
    tried = [f"{name}.{suffix}" for suffix in suffixes] if name.count(".") < ndots else [name]
    position = tried.index("mnist-worker-0.mnist-net1.ml.svc.cluster.local")

    assert 2 * (position + 1) == dns_cost.QUERIES_OF_A_LOOKUP
    assert dns_cost.QUERIES_OF_A_LOOKUP - 1 == dns_cost.REFUSALS_OF_A_LOOKUP  # the name has an address of one kind


@pytest.mark.parametrize(
    ("nodes", "cores", "expected"),
    [(1, 4, 1), (2, 8, 2), (32, 512, 2), (33, 512, 3), (100, 1600, 7), (4, 1025, 5), (1250, 160_000, 100)],
    ids=["one node", "no single point of failure", "even", "by nodes", "many small nodes", "by cores", "at most"],
)
def test_autoscalers_replicas(nodes: int, cores: int, expected: int):
    assert dns_cost.replicas(nodes, cores, linear()) == expected


@pytest.mark.parametrize("n", [1, 28, 4000])
def test_answer_has_the_bytes_of_its_parts(n: int):
    name = "mnist-net1.ml.svc.cluster.local"
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    pointer, kind_and_class, ttl, length, address = b"\xc0\x0c", bytes(4), bytes(4), bytes(2), bytes(4)
    message = bytes(12) + labels + kind_and_class + (pointer + kind_and_class + ttl + length + address) * n

    assert dns_cost.answer_bytes(n, name) == len(message)
