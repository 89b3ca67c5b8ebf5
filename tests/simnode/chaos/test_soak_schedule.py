"""The schedule of a soak."""

from typing import get_args

from simnode.chaos.soak_schedule import FAULTS, HOSTILITIES, Fault, Hostility, step, trouble


def test_same_seed_gives_the_same_steps_and_faults() -> None:
    assert [step(7, number, 2) for number in range(50)] == [step(7, number, 2) for number in range(50)]
    assert [trouble(7, number) for number in range(50)] == [trouble(7, number) for number in range(50)]
    assert [step(7, number, 2) for number in range(50)] != [step(8, number, 2) for number in range(50)]


def test_every_kind_comes_and_every_tenant_acts() -> None:
    steps = [step(1, number, 3) for number in range(2000)]

    assert {one.kind for one in steps} == HOSTILITIES.keys() == set(get_args(Hostility))
    assert {one.tenant for one in steps} == {0, 1, 2}
    assert {trouble(1, number).kind for number in range(200)} == FAULTS.keys() == set(get_args(Fault))
