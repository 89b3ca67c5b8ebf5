"""The load of a run: deterministic, of the promised sizes, and as heavy as is asked for."""

import pytest

from benches.gang_load.gangs import Fabric, load, pods_of_gangs

FABRIC = Fabric(nodes=640, leaf_nodes=16, node_gpus=8)
LOAD = load(FABRIC, gangs=5000, seconds=900, share=0.9)


def test_fabric_counts_its_leaves_and_their_gpus() -> None:
    assert (FABRIC.leaves, FABRIC.leaf_gpus, FABRIC.gpus) == (40, 128, 5120)


def test_last_leaf_may_have_fewer_nodes() -> None:
    assert Fabric(nodes=40, leaf_nodes=16, node_gpus=8).leaves == 3


def test_same_seed_makes_the_same_gangs() -> None:
    assert load(FABRIC, 5000, 900, 0.9) == LOAD


def test_another_seed_makes_other_gangs() -> None:
    assert load(FABRIC, 5000, 900, 0.9, seed=2) != LOAD


def test_gangs_have_from_one_pod_to_a_tenth_of_all_gpus() -> None:
    assert sorted({gang.pods for gang in LOAD.then}) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]


def test_each_size_asks_for_the_same_share_of_the_gpus() -> None:
    sizes = pods_of_gangs(FABRIC, 100_000)

    shares = [size * sizes.count(size) / sum(sizes) for size in set(sizes)]
    assert shares == [pytest.approx(0.1, rel=0.02)] * 10


@pytest.mark.parametrize("gangs", [1, 7, 30, 1667])
def test_there_are_as_many_gangs_as_were_asked_for(gangs: int) -> None:
    assert len(pods_of_gangs(FABRIC, gangs)) == gangs


def test_gangs_ask_for_the_share_of_the_gpus_on_average() -> None:
    asked = sum(gang.pods * gang.lives for gang in LOAD.then)

    assert asked / (FABRIC.gpus * 900) == pytest.approx(0.9, rel=0.05)


def test_first_gangs_fill_the_cluster_as_far_as_the_load_does() -> None:
    pods = sum(gang.pods for gang in LOAD.first)

    assert 0.8 * FABRIC.gpus < pods <= 0.9 * FABRIC.gpus


def test_first_gangs_are_gone_after_the_time_that_a_gang_lives_on_average() -> None:
    assert max(gang.lives for gang in LOAD.first) <= LOAD.life


def test_gangs_come_in_order_while_the_load_lasts() -> None:
    times = [gang.comes for gang in LOAD.then]

    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= 900


def test_gang_that_no_leaf_holds_requires_none() -> None:
    assert not any(gang.required for gang in LOAD.then if gang.pods > FABRIC.leaf_gpus)


def test_half_of_the_other_gangs_require_a_leaf() -> None:
    small = [gang.required for gang in LOAD.then if gang.pods <= FABRIC.leaf_gpus]

    assert sum(small) / len(small) == pytest.approx(0.5, abs=0.03)


def test_names_are_of_one_gang_each() -> None:
    names = [gang.name for gang in (*LOAD.first, *LOAD.then)]

    assert len(names) == len(set(names))
