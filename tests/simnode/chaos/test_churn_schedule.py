"""The schedule of a churn follows from its seed alone, and contains each plan."""

import itertools
from collections import Counter

from simnode.chaos.churn_schedule import DISTURBANCES, NODE_EVENTS, POD_PLANS, PodPlan, Step, block, step

MANY = 5_000  # steps: a churn of 10,000 operations has as many


def steps(seed: int) -> list[Step]:
    return [step(seed, number) for number in range(MANY)]


def test_same_seed_returns_the_same_schedule() -> None:
    assert steps(7) == steps(7)
    assert block(7, 3, 100, 32) == block(7, 3, 100, 32)


def test_another_seed_returns_another_schedule() -> None:
    assert steps(7) != steps(8)


def test_step_does_not_depend_on_the_number_of_steps_at_once() -> None:
    numbered = {one.number: one for at_most in (1, 32) for one in block(7, 0, 40, at_most).steps}
    assert all(step(7, number) == one for number, one in numbered.items())


def test_schedule_contains_each_plan_and_most_pods_have_no_fault() -> None:
    found = Counter(one.plan for one in steps(7))

    assert found.keys() == {*POD_PLANS, *NODE_EVENTS}
    assert found[POD_PLANS[0]] > MANY * 0.75


def test_each_disturbance_and_a_flood_of_the_webhook_come_several_times() -> None:
    found = Counter(one.plan for one in steps(7))

    assert min(found[kind] for kind in (*DISTURBANCES, "webhook flooded")) >= 3
    assert {"health port flooded", "webhook flooded"} <= NODE_EVENTS.keys()


def test_pods_have_no_vf_one_or_several() -> None:
    assert {one.vfs for one in steps(7)} == {0, 1, 2, 4, 8}


def test_shares_of_all_plans_add_up_to_one_thousand() -> None:
    assert sum(plan.thousandths for plan in POD_PLANS) + sum(NODE_EVENTS.values()) == 1000


def test_blocks_have_1_to_32_steps_at_once_and_not_more_than_the_argument() -> None:
    assert {block(7, number, 0, 32).at_once for number in range(200)} == {1, 2, 4, 8, 16, 32}
    assert {block(7, number, 0, 8).at_once for number in range(200)} == {1, 2, 4, 8}


def test_late_del_comes_after_at_least_twenty_other_steps() -> None:
    late = [one.late for one in steps(7) if isinstance(one.plan, PodPlan) and "late" in one.plan.end]
    assert min(late) >= 20


def test_steps_of_a_block_have_consecutive_numbers() -> None:
    blocks = list(itertools.islice((block(7, number, 50, 4) for number in itertools.count()), 3))
    assert all([one.number for one in each.steps] == list(range(50, 50 + len(each.steps))) for each in blocks)
