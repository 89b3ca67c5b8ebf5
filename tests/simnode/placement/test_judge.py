"""The judge names each kind of fault that is planted in the record of a run."""

from simnode.placement.fabric import Fabric
from simnode.placement.gangs import Gang
from simnode.placement.judge import violations
from simnode.placement.simulation import Result, Run

FABRIC = Fabric("two leaves", (1, 2), ((1, 1.0),), load=0.5)
A = Gang("a", arrives=0.0, runs=10.0, vfs=(4, 4))
B = Gang("b", arrives=5.0, runs=10.0, vfs=(8,))


def judged(
    *runs: Run, waiting: tuple[Gang, ...] = (), gangs: tuple[Gang, ...] = (A, B), one_leaf: bool = True
) -> list[str]:
    return list(violations(FABRIC, gangs, Result(runs, waiting, refused=0), one_leaf=one_leaf))


def test_a_good_run_is_not_complained_of():
    assert judged(Run(A, 0.0, (1, 1)), Run(B, 5.0, (0,))) == []


def test_what_begins_when_another_ends_may_have_its_node():
    assert judged(Run(A, 0.0, (1, 1)), Run(B, 10.0, (1,))) == []


def test_a_node_that_is_over_booked_for_a_moment_is_named():
    assert judged(Run(A, 0.0, (1, 1)), Run(B, 9.9, (1,))) == ["node 1 held 16 VFs at once and has 8"]


def test_a_gang_in_two_leaves_is_named_if_it_requires_one():
    runs = Run(A, 0.0, (0, 1)), Run(B, 5.0, (2,))

    assert judged(*runs) == ["a requires one leaf and was bound in 2"]
    assert judged(*runs, one_leaf=False) == []


def test_a_gang_that_waits_for_ever_is_named():
    assert judged(Run(A, 0.0, (1, 1)), waiting=(B,)) == ["1 gangs wait for ever though nothing runs, the first is b"]


def test_a_gang_that_is_bound_in_part_is_named():
    assert judged(Run(A, 0.0, (1,)), Run(B, 5.0, (0,))) == ["a has 2 pods, of which 1 were bound"]


def test_a_gang_that_got_lost_or_ran_twice_is_noticed():
    lost = "the gangs that ran or wait are not the gangs that arrived"

    assert judged(Run(A, 0.0, (1, 1))) == [lost]
    assert judged(Run(A, 0.0, (1, 1)), Run(B, 5.0, (0,)), Run(B, 15.0, (0,))) == [lost]


def test_a_gang_that_was_bound_before_it_arrived_is_named():
    assert judged(Run(A, 0.0, (1, 1)), Run(B, 4.0, (0,))) == ["b was bound before it had arrived"]
