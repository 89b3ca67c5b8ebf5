"""Figures of a record: waits, the least that would do, and GPUs that were idle for nothing."""

import pytest

from benches.gang_load.figures import Span, Usage, Waiting, bound_at, fitting, placed, usage
from benches.gang_load.gangs import Fabric, Gang
from benches.gang_load.record import PodTimes

FABRIC = Fabric(nodes=4, leaf_nodes=2, node_gpus=8)
LEAF_OF = {"a": 0, "b": 0, "c": 1, "d": 1}


def gang(pods: int, *, required: bool = False) -> Gang:
    return Gang("g", pods, required, comes=0, lives=10)


def on(*nodes: str, bound: float = 1, ended: float | None = None) -> list[PodTimes]:
    return [PodTimes("g", node, bound, ended) for node in nodes]


def test_gang_on_the_fewest_nodes_uses_no_more_than_the_least() -> None:
    assert placed(FABRIC, gang(8), on(*"a" * 8), LEAF_OF) == Span(1, 1, 1, 1)


def test_gang_in_two_leaves_uses_more_than_the_least() -> None:
    assert placed(FABRIC, gang(2), on("a", "c"), LEAF_OF) == Span(2, 2, 1, 1)


def test_gang_larger_than_a_leaf_needs_two() -> None:
    nodes = ["a"] * 8 + ["b"] * 8 + ["c"]

    assert placed(FABRIC, gang(17), on(*nodes), LEAF_OF) == Span(2, 3, 2, 3)


def test_gang_is_bound_when_its_last_pod_is() -> None:
    assert bound_at(gang(2), [*on("a", bound=3), *on("a", bound=5)]) == 5


def test_gang_of_which_a_pod_was_never_bound_is_not_bound() -> None:
    assert bound_at(gang(2), [*on("a"), PodTimes("g")]) is None


def test_lost_pod_counts_for_no_gang() -> None:
    lost = PodTimes("g", "a", bound=1, ended=2, lost=True)

    assert bound_at(gang(1), [lost, *on("a", bound=7)]) == 7


@pytest.mark.parametrize(
    ("free", "waiting", "expected"),
    [
        ([4, 4], [], 0),
        ([4, 4], [Waiting(4, required=True)], 4),
        ([4, 4], [Waiting(5, required=True)], 0),
        ([4, 4], [Waiting(5, required=False)], 5),
        ([4, 4], [Waiting(9, required=False)], 0),
        ([2, 6], [Waiting(2, required=True), Waiting(6, required=True)], 8),
        ([4, 4], [Waiting(9, required=False), Waiting(3, required=True)], 3),
    ],
)
def test_waiting_gangs_fit_into_what_is_free(free: list[int], waiting: list[Waiting], expected: int) -> None:
    assert fitting(free, waiting) == expected


def test_free_gpus_are_not_changed_by_the_look() -> None:
    free = [4, 4]
    fitting(free, [Waiting(4, required=True)])

    assert free == [4, 4]


def test_gpus_are_idle_from_a_gangs_creation_until_it_is_bound() -> None:
    pods = on(*"a" * 8, bound=5)

    measured = usage(FABRIC, {"g": gang(8)}, {"g": 0.0}, pods, LEAF_OF, (0, 10))

    assert measured == Usage(used=0.5 * 8 / 32, idle=0.5 * 8 / 32)


def test_gpus_of_a_gang_that_has_ended_are_free() -> None:
    pods = on(*"a" * 8, bound=0, ended=5)

    assert usage(FABRIC, {"g": gang(8)}, {"g": 0.0}, pods, LEAF_OF, (0, 10)) == Usage(used=0.5 * 8 / 32, idle=0)


def test_gang_that_fits_nowhere_makes_no_gpu_idle() -> None:
    assert usage(FABRIC, {"g": gang(33)}, {"g": 0.0}, [], LEAF_OF, (0, 10)) == Usage(used=0, idle=0)


def test_gang_that_was_deleted_while_it_ran_waits_no_more() -> None:
    pods = [PodTimes("g", "a", bound=0, ended=5, lost=True)]

    assert usage(FABRIC, {"g": gang(1)}, {"g": 0.0}, pods, LEAF_OF, (0, 10)) == Usage(used=0.5 / 32, idle=0)
