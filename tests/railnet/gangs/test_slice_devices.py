"""What nodes offer by DRA, from ResourceSlices: complete pools of the newest generation, without tainted devices, and nothing of other drivers."""

import copy
import sys
from typing import Any

import pytest

from railnet.gangs.slice_devices import BY_CLAIM, PoolSlice, SliceDevices, pool_slice
from tests.railnet.gangs.slices_and_claims import VF, slices_of

JsonObject = dict[str, Any]


def seen(*documents: JsonObject) -> SliceDevices:
    devices = SliceDevices()
    for document in documents:
        devices.change_slice(None, pool_slice(document))
    return devices


def now(devices: SliceDevices, node: str = "gpu-7") -> dict[str, int]:
    return dict(devices.of(node).now)


def test_node_has_the_devices_of_all_its_slices() -> None:
    devices = seen(*slices_of("gpu-7", 130), *slices_of("gpu-8", 2))

    assert now(devices) == {VF: 130, BY_CLAIM: 130}
    assert now(devices, "gpu-8") == {VF: 2, BY_CLAIM: 2}
    assert devices.resources == {VF}
    assert now(devices, "gpu-9") == {}


def test_tainted_device_is_not_counted_and_comes_back_when_it_is_healthy() -> None:
    (sick,), (well,) = slices_of("gpu-7", 4, unhealthy=3), slices_of("gpu-7", 4)
    devices = seen(sick)

    assert now(devices) == {VF: 1, BY_CLAIM: 1}
    assert devices.of("gpu-7").at_best[VF] == 4
    assert devices.change_slice(pool_slice(sick), pool_slice(well)) == {"gpu-7"}
    assert now(devices) == {VF: 4, BY_CLAIM: 4}


@pytest.mark.parametrize(("effect", "counted"), [("NoSchedule", 1), ("NoExecute", 1), ("None", 2)])
def test_taint_counts_by_its_effect(effect: str, counted: int) -> None:
    (document,) = slices_of("gpu-7", 2, unhealthy=1)
    document["spec"]["devices"][0]["taints"][0]["effect"] = effect

    assert now(seen(document))[VF] == counted


def test_tainted_device_that_a_pod_keeps_counts_while_the_pod_has_it() -> None:
    """The pod's request counts as used, so the device must count as there."""
    (document,) = slices_of("gpu-7", 4, unhealthy=2)
    devices, held = seen(document), [("gpu-7", document["spec"]["devices"][0]["name"])]

    assert devices.change_held((), held) == {"gpu-7"}
    assert now(devices)[VF] == 3
    assert devices.change_held(held, ()) == {"gpu-7"}
    assert now(devices)[VF] == 2
    assert devices.change_held((), [("gpu-9", "pci-0000-00-00-0")]) == set()


def test_pool_counts_when_all_slices_of_its_newest_generation_are_there() -> None:
    before, after = slices_of("gpu-7", 100), slices_of("gpu-7", 70, above=4)
    devices = seen(*before)

    devices.change_slice(pool_slice(before[0]), pool_slice(after[0]))
    assert now(devices) == {}  # one slice is of an older generation
    assert devices.of("gpu-7").at_best[VF] == 100
    devices.change_slice(pool_slice(before[1]), pool_slice(after[1]))
    assert now(devices) == {VF: 70, BY_CLAIM: 70}


def test_slice_of_an_older_generation_that_remains_is_not_counted() -> None:
    older, newer = slices_of("gpu-7", 100)[1], slices_of("gpu-7", 10, above=4)[0]

    assert now(seen(older, newer))[VF] == 10


def test_slices_that_are_deleted_leave_what_the_node_has_at_best() -> None:
    """Kubelet deletes a node's slices when it starts: that is no reason to refuse a gang for good."""
    (document,) = slices_of("gpu-7", 8)
    devices = seen(document)
    devices.change_slice(pool_slice(document), None)

    assert now(devices) == {}
    assert devices.of("gpu-7").at_best == {VF: 8, BY_CLAIM: 8}
    devices.forget("gpu-7")
    assert devices.of("gpu-7").at_best == {}


def test_resources_are_counted_each_for_itself_and_a_slice_cannot_make_up_cpu() -> None:
    devices = SliceDevices()
    devices.change_slice(None, PoolSlice("n", "n", "n-0", 1, 1, (("", 1), ("cpu", 4), (VF, 2), ("rdma/roce_vf", 3))))

    assert now(devices, "n") == {VF: 2, "rdma/roce_vf": 3, BY_CLAIM: 10}
    assert devices.resources == {VF, "rdma/roce_vf"}


@pytest.mark.parametrize(
    "changes", [{"driver": "gpu.example.com"}, {"nodeName": None}, {"nodeName": None, "allNodes": True}], ids=str
)
def test_slice_of_another_driver_or_of_no_node_is_not_read(changes: JsonObject) -> None:
    (document,) = slices_of("gpu-7", 2)
    document["spec"] |= changes

    assert pool_slice(document) is None


@pytest.mark.parametrize(
    "spec",
    [
        {"devices": [{"attributes": {}, "taints": [{"effect": "NoSchedule"}]}]},
        {"devices": [7]},
        {"devices": {"name": "x"}},
        {"pool": {"name": "gpu-7", "generation": "x", "resourceSliceCount": 1}},
        {"pool": None},
    ],
    ids=str,
)
def test_malformed_slice_raises_what_costs_the_informer_that_slice_alone(spec: JsonObject) -> None:
    document = copy.deepcopy(slices_of("gpu-7", 2)[0])
    document["spec"] |= spec

    with pytest.raises((KeyError, TypeError, AttributeError, ValueError)):
        pool_slice(document)


def test_slices_of_a_thousand_vfs_take_few_bytes() -> None:
    """Ten thousand nodes of 1,016 VFs are then some tens of megabytes."""
    parts = [pool_slice(document) for document in slices_of("gpu-7", 1016)]
    size = sum(sys.getsizeof(part) + sys.getsizeof(part.healthy) for part in parts if part is not None)

    assert len(parts) == 16
    assert size < 16 * 256
