"""The time of a pass: who made it long waits for the next one, and all others are served."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from railnet.gangs.placement.pass_budget import PassBudget
from tests.railnet.gangs.placement.builders import a_gang, a_pass, leaves


def slow(seconds: float) -> Callable[[], float]:
    """Return a clock by which whatever is done takes so many seconds."""
    ticks = count()
    return lambda: next(ticks) * seconds


def test_namespace_whose_gangs_take_long_is_put_off_and_another_one_is_served() -> None:
    cluster = leaves(*[1] * 12)
    gangs = [a_gang(2, name=f"many-{number}", since=number) for number in range(8)]
    other = replace(a_gang(2, name="other", since=99), namespace="other")
    # No turns: none of the first ones gets a place by which the other namespace would have its turn.
    first = [replace(gang, members=gang.members * 9) for gang in gangs]

    found = a_pass(cluster, [*first, other], 100.0, elapsed=slow(0.3))

    assert [placement.gang for placement in found.placements] == [("other", "other")]
    assert [shortfall.gang[1] for shortfall in found.shortfalls] == [f"many-{number}" for number in range(4)]
    assert found.again == 101.0


def test_next_pass_goes_on_with_those_that_were_put_off() -> None:
    """Those that have no place are remembered, which costs next to nothing."""
    cluster = leaves(1)
    gangs = [a_gang(2, name=f"many-{number}", since=number) for number in range(6)]
    first = [replace(gang, members=gang.members * 9) for gang in gangs]
    before = a_pass(cluster, first, elapsed=slow(0.3))

    found = a_pass(cluster, first, before=before)

    assert len(before.shortfalls) == 4
    assert len(found.shortfalls) == 6


def test_late_members_of_a_costly_tenant_are_put_off_too() -> None:
    cluster = leaves(1)
    gangs = [a_gang(2, name=f"many-{number}", since=number) for number in range(6)]
    started = [replace(gang, members=(replace(gang.members[0], node="a-0"), *gang.members[1:] * 9)) for gang in gangs]

    found = a_pass(cluster, started, elapsed=slow(0.3))

    assert len(found.shortfalls) == 4


def test_tenant_with_many_namespaces_has_a_bounded_part_of_the_time() -> None:
    now = [0.0]
    budget = PassBudget(lambda: now[0])
    served = 0
    for number in range(1000):
        if budget.permits(f"of-one-tenant-{number % 100}"):
            with budget.charged_to(f"of-one-tenant-{number % 100}"):
                now[0] += 0.1
            served += 1

    assert served == 100  # in time ten, and then each namespace once
    assert budget.permits("other")
