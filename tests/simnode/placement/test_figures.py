from simnode.placement.fabric import Fabric
from simnode.placement.figures import cross_leaf_edges, figures, percentile
from simnode.placement.gangs import Gang
from simnode.placement.simulation import Result, Run

FABRIC = Fabric("two leaves", (2, 2), ((1, 0.5), (2, 0.5)), load=0.5)


def run(pods: int, arrives: float, bound: float, *nodes: int) -> Run:
    return Run(Gang(f"gang-{arrives}", arrives, 10.0, (8,) * pods), bound, nodes)


def test_a_ring_in_one_leaf_has_no_edge_between_leaves():
    assert cross_leaf_edges([3, 3, 3]) == 0


def test_a_ring_whose_neighbours_share_leaves_has_one_edge_for_each_leaf():
    assert cross_leaf_edges([0, 0, 1, 1, 2]) == 3


def test_a_ring_that_alternates_crosses_with_every_edge():
    assert cross_leaf_edges([0, 1, 0, 1]) == 4


def test_a_single_pod_counts_for_waits_but_not_for_leaves():
    result = Result((run(1, 0.0, 4.0, 0), run(2, 1.0, 1.0, 0, 2)), (), refused=0)

    found = figures(FABRIC, [result])

    assert (found.one_leaf, found.ring_edges, found.wait_mean, found.wait_p95_largest) == (0.0, 2.0, 2.0, 0.0)


def test_utilisation_is_of_the_time_from_the_first_arrival_to_the_last_end():
    result = Result((run(1, 0.0, 0.0, 0), run(2, 5.0, 10.0, 1, 2)), (), refused=0)

    assert figures(FABRIC, [result]).utilisation == (8 * 10 + 16 * 10) / (32 * 20)


def test_a_percentile_is_one_of_the_values():
    assert [percentile([3.0, 1.0, 2.0, 4.0], percent) for percent in (25, 50, 95)] == [1.0, 2.0, 4.0]
