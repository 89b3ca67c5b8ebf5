from simnode.placement.fabric import Fabric
from simnode.placement.scheduler import Pin, Scheduler


def scheduler(*leaves: int) -> Scheduler:
    return Scheduler(Fabric("test", leaves, ((1, 1.0),), load=0.5), seed=0)


def test_a_pod_goes_to_the_emptiest_node_that_its_pin_allows():
    nodes = scheduler(2, 1)
    nodes.bind([4], [Pin(0, preferred=0)])

    assert nodes.choose(Pin(0), 4) == 1


def test_a_pod_prefers_a_node_with_room_to_an_emptier_one():
    nodes = scheduler(2)
    nodes.bind([4], [Pin(preferred=1)])

    assert nodes.bind([4], [Pin(0, preferred=1)]) == [1]


def test_a_preferred_node_that_is_full_holds_up_nothing():
    nodes = scheduler(2)
    nodes.bind([8], [Pin(preferred=1)])

    assert nodes.bind([4], [Pin(0, preferred=1)]) == [0]


def test_a_pin_is_never_left():
    nodes = scheduler(1, 5)
    nodes.bind([8], [Pin(0)])

    assert nodes.bind([4], [Pin(0)]) is None


def test_pods_are_bound_together_or_not_at_all():
    nodes = scheduler(2, 2)

    assert nodes.bind([8, 8, 8], [Pin(0)] * 3) is None
    assert (nodes.slots(0, 8), nodes.slots(None, 8)) == (2, 4)


def test_slots_count_what_fits_on_single_nodes():
    nodes = scheduler(2, 3)
    nodes.bind([5, 5], [Pin(0), Pin(0)])

    assert [nodes.slots(0, vfs) for vfs in (1, 3, 4)] == [6, 2, 0]
    assert nodes.slots(None, 3) == 2 + 3 * 2


def test_what_is_released_is_free_again():
    nodes = scheduler(1)
    bound = nodes.bind([3, 5], [Pin(), Pin()])
    assert bound is not None
    assert nodes.slots(None, 1) == 0

    nodes.release([3, 5], bound)

    assert nodes.slots(None, 8) == 1
