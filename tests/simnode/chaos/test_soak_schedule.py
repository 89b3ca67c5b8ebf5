"""The schedule of a soak."""

from typing import get_args

from simnode.chaos.soak_schedule import (
    FAULTS,
    HOSTILITIES,
    NODE_FAULTS,
    NODE_HOSTILITIES,
    Fault,
    Hostility,
    NodeFault,
    step,
    trouble,
)


def test_same_seed_gives_the_same_steps_and_faults() -> None:
    assert [step(7, number, 2) for number in range(50)] == [step(7, number, 2) for number in range(50)]
    assert [trouble(7, number) for number in range(50)] == [trouble(7, number) for number in range(50)]
    assert [step(7, number, 2) for number in range(50)] != [step(8, number, 2) for number in range(50)]


def test_every_kind_comes_and_every_tenant_acts() -> None:
    steps = [step(1, number, 3) for number in range(2000)]

    assert {one.kind for one in steps} == HOSTILITIES.keys() == set(get_args(Hostility)) - NODE_HOSTILITIES.keys()
    assert {one.tenant for one in steps} == {0, 1, 2}
    assert {trouble(1, number).kind for number in range(200)} == FAULTS.keys() == set(get_args(Fault))


def test_real_node_adds_what_happens_to_it() -> None:
    hostilities = {step(1, number, 1, real_node=True).kind for number in range(2000)}
    faults = {trouble(1, number, real_node=True).kind for number in range(300)}

    assert hostilities == {*HOSTILITIES, *NODE_HOSTILITIES} == set(get_args(Hostility))
    assert faults == {*FAULTS, *NODE_FAULTS}
    assert NODE_FAULTS.keys() == set(get_args(NodeFault))
