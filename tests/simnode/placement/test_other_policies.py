from functools import partial

from simnode.placement.fabric import Fabric
from simnode.placement.gangs import Gang
from simnode.placement.other_policies import BestFit, FirstFit, FirstPodDecides, Spread
from simnode.placement.policy import MakePolicy
from simnode.placement.scheduler import Pin, Scheduler


def scheduler(*leaves: int) -> Scheduler:
    return Scheduler(Fabric("test", leaves, ((1, 1.0),), load=0.5), seed=0)


def leaves_of(policy: MakePolicy, nodes: Scheduler, pods: int, now: float = 0.0) -> list[int | None] | None:
    gang = Gang("a", arrives=0.0, runs=1.0, vfs=(8,) * pods)
    decisions = list(policy(nodes).decide([gang], now))
    return [pin.leaf for pin in decisions[0].pins] if decisions else None


def test_spread_pins_no_pod():
    assert leaves_of(Spread, scheduler(2, 1), 3) == [None, None, None]


def test_the_leaf_of_the_first_pod_decides_also_if_another_leaf_had_room():
    nodes = scheduler(1, 3)
    nodes.bind([1, 1, 1], [Pin(preferred=node) for node in (1, 2, 3)])  # the emptiest node is the small leaf's

    assert leaves_of(FirstPodDecides, nodes, 2) is None
    assert leaves_of(FirstPodDecides, nodes, 1) == [0]


def test_first_fit_takes_the_first_leaf_with_room_or_any():
    assert leaves_of(FirstFit, scheduler(1, 4, 2), 2) == [1, 1]
    assert leaves_of(FirstFit, scheduler(1, 1), 2) == [None, None]


def test_best_fit_takes_the_leaf_with_the_least_room_left_over():
    assert leaves_of(partial(BestFit, relax_after=None), scheduler(1, 4, 2), 2) == [2, 2]


def test_best_fit_waits_until_it_relaxes_and_then_takes_the_fewest_leaves():
    policy = partial(BestFit, relax_after=30.0)

    assert leaves_of(policy, scheduler(1, 4, 2), 5, now=29.0) is None
    assert leaves_of(policy, scheduler(1, 4, 2), 5, now=30.0) == [1, 1, 1, 1, 0]


def test_best_fit_says_when_it_relaxes():
    policy = BestFit(scheduler(1, 1), 30.0)
    list(policy.decide([Gang("a", 10.0, 1.0, (8, 8)), Gang("b", 5.0, 1.0, (8, 8))], now=12.0))

    assert policy.again() == 35.0
