"""The ResourceSlices of a node: what is written, and what the scheduler sees between two writes."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.dra.devices import DraDevice, device_object
from railnet.dra.resource_slices import (
    DEVICES_OF_A_SLICE,
    NodeIdentity,
    existing_slice,
    is_own,
    lost_taints,
    own_slices,
    slice_name,
    writes,
)
from tests.railnet.dra.slice_store import NODE, SliceStore, a_device

DOWN = "port 1 of PF 0000:03:00.0 (mlx5_0) is '1: DOWN', '2: Polling': check its cable and switch port"
MANY = 1016

some_devices = st.dictionaries(
    st.integers(0, 300), st.tuples(st.sampled_from([None, DOWN, "no driver"]), st.integers(0, 3)), max_size=200
).map(lambda facts: tuple(a_device(number, reason, mtu=mtu) for number, (reason, mtu) in sorted(facts.items())))


def names(devices: Any) -> list[str]:
    return [device["name"] if isinstance(device, dict) else device.name for device in devices]


def without_times(devices: Any) -> list[Any]:
    plain = copy.deepcopy(list(devices))
    for device in plain:
        for taint in device.get("taints", ()):
            taint.pop("timeAdded", None)
    return plain


@given(st.lists(some_devices, max_size=6))
@pytest.mark.slow
def test_any_sequence_of_changes_ends_in_the_wanted_devices_and_then_in_silence(
    states: list[tuple[DraDevice, ...]],
) -> None:
    store = SliceStore()
    for devices in states:
        store.bring(devices)
        assert without_times(store.pool() or ()) == [device_object(device) for device in devices]
        assert store.bring(devices) == 0


@given(st.lists(st.tuples(some_devices, st.integers(0, 8)), max_size=6), some_devices)
@pytest.mark.slow
def test_scheduler_never_sees_half_of_a_change(
    states: list[tuple[tuple[DraDevice, ...], int]], last: tuple[DraDevice, ...]
) -> None:
    """Each change is interrupted after some writes, and another one follows."""
    store = SliceStore()
    whole: list[list[str]] = [[]]
    for devices, most in [*states, (last, 1000)]:
        whole.append(names(devices))
        for request in writes(store.existing(), devices, NODE)[:most]:
            store.send(request)
            seen = store.pool()
            assert seen is None or names(seen) in whole
            assert seen is None or len(set(names(seen))) == len(seen)
    assert names(store.pool() or ()) == names(last)


@given(some_devices, st.integers(0, 4))
def test_interrupted_generation_is_ended_and_not_begun_again(devices: tuple[DraDevice, ...], most: int) -> None:
    store = SliceStore()
    needed = store.bring(devices, most)
    store.bring(devices)

    assert sum(store.written.values()) == needed
    assert {document["spec"]["pool"]["generation"] for document in store.slices.values()} <= {1}


def test_a_thousand_vfs_take_16_writes_and_none_after_that() -> None:
    store, devices = SliceStore(), [a_device(number) for number in range(MANY)]

    assert [store.bring(devices), store.bring(devices)] == [16, 0]
    assert [len(document["spec"]["devices"]) for document in store.slices.values()] == [64] * 15 + [56]
    assert {document["spec"]["pool"]["resourceSliceCount"] for document in store.slices.values()} == {16}


def test_a_device_that_becomes_unhealthy_takes_one_write_and_keeps_the_generation() -> None:
    store, devices = SliceStore(), [a_device(number) for number in range(MANY)]
    store.bring(devices)
    devices[100] = a_device(100, DOWN)

    assert store.bring(devices) == 1
    assert {document["spec"]["pool"]["generation"] for document in store.slices.values()} == {1}
    assert (store.pool() or ())[100]["taints"] == [
        {
            "key": "rdma.railnet.io/unhealthy",
            "value": "port-1-of-pf-0000-03-00-0-mlx5-0-is-1-down-2-polling-check-its",
            "effect": "NoSchedule",
            "timeAdded": "2026-01-01T00:00:17Z",
        }
    ]


def test_time_of_a_taint_stays_while_other_devices_of_the_slice_change() -> None:
    store = SliceStore()
    store.bring([a_device(0, DOWN), a_device(1)])
    before = (store.pool() or ())[0]["taints"]
    store.bring([a_device(0, DOWN), a_device(1, mtu=4092)])

    assert (store.pool() or ())[0]["taints"] == before


def test_a_device_more_is_a_new_generation_of_all_slices() -> None:
    store, devices = SliceStore(), [a_device(number) for number in range(130)]
    store.bring(devices)

    assert store.bring([*devices, a_device(130)]) == 3
    assert {document["spec"]["pool"]["generation"] for document in store.slices.values()} == {2}


def test_fewer_devices_need_fewer_slices_and_the_others_are_deleted_last() -> None:
    store, devices = SliceStore(), [a_device(number) for number in range(130)]
    store.bring(devices)

    assert [request.verb.right for request in writes(store.existing(), devices[:10], NODE)] == [
        "update",
        "delete",
        "delete",
    ]


def test_without_devices_there_is_no_slice() -> None:
    store = SliceStore()
    store.bring([a_device(0)])
    store.bring([])

    assert store.slices == {}


def test_a_slice_that_was_deleted_comes_back_with_its_generation() -> None:
    store, devices = SliceStore(), [a_device(number) for number in range(130)]
    store.bring(devices)
    del store.slices[slice_name("gpu-7", 1)]

    assert store.bring(devices) == 1
    assert names(store.pool() or ()) == names(devices)


def test_generation_is_higher_than_one_that_the_pool_has_had() -> None:
    (request,) = writes([], [a_device(0)], NODE, above=7)
    body: Any = request.body

    assert body["spec"]["pool"] == {"name": "gpu-7", "generation": 8, "resourceSliceCount": 1}


@pytest.mark.parametrize(
    "strange",
    [
        {"allNodes": True},
        {"pool": {"name": "another", "generation": 1, "resourceSliceCount": 1}},
        {"devices": []},
        {"pool": {"name": "gpu-7", "generation": 1, "resourceSliceCount": 2}},
    ],
)
def test_a_slice_that_another_program_changed_is_written_again(strange: dict[str, Any]) -> None:
    store = SliceStore()
    store.bring([a_device(0)])
    store.slices[slice_name("gpu-7", 0)]["spec"].update(strange)

    assert store.bring([a_device(0)]) == 1
    assert store.bring([a_device(0)]) == 0


def test_a_slice_of_a_node_that_was_made_again_gets_the_new_owner() -> None:
    store = SliceStore()
    store.bring([a_device(0)])

    (request,) = writes(store.existing(), [a_device(0)], NodeIdentity("gpu-7", "uid-2"))
    body: Any = request.body
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "gpu-7", "uid": "uid-2", "controller": True}
    ]


def test_own_slice_of_another_name_is_deleted() -> None:
    store = SliceStore()
    store.bring([a_device(0)])
    document = store.slices[slice_name("gpu-7", 0)]
    metadata = {**document["metadata"], "name": "0-rdma.railnet.io-gpu-7-x8k2j", "uid": "other"}
    store.slices[metadata["name"]] = {**document, "metadata": metadata}
    requests = writes(store.existing(), [a_device(0)], NODE)

    assert [str(request) for request in requests] == [
        "update resourceslices/gpu-7-rdma.railnet.io-0",
        "delete resourceslices/0-rdma.railnet.io-gpu-7-x8k2j",
    ]


def test_slice_of_another_driver_is_refused_where_own_ones_were_asked_for() -> None:
    store = SliceStore()
    store.bring([a_device(0)])
    (document,) = store.slices.values()
    document["spec"]["driver"] = "gpu.example.com"

    assert not is_own(document, "gpu-7")
    with pytest.raises(ValueError, match="is of another driver or node"):
        existing_slice(document, "gpu-7")


def test_api_server_that_drops_taints_is_noticed_by_its_answer() -> None:
    (request,) = writes([], [a_device(0, DOWN)], NODE)

    assert not lost_taints(request, SliceStore().send(request))
    assert lost_taints(request, SliceStore(keeps_taints=False).send(request))


def test_own_slices_are_asked_for_by_node_and_driver() -> None:
    assert own_slices("gpu-7").query() == "fieldSelector=spec.nodeName%3Dgpu-7%2Cspec.driver%3Drdma.railnet.io"


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True), st.integers(0, 999))
def test_name_of_a_slice_is_short_enough_and_begins_with_the_node(node: str, index: int) -> None:
    name = slice_name(node, index)

    assert len(name) <= 253
    assert name.startswith(node[:200].rstrip("-."))
    assert name.endswith(f"-rdma.railnet.io-{index}")


def test_long_names_of_nodes_that_differ_at_the_end_have_slices_of_different_names() -> None:
    assert slice_name("n" * 250 + "a", 0) != slice_name("n" * 250 + "b", 0)
    assert slice_name("n" * 235, 0) == "n" * 235 + "-rdma.railnet.io-0"


def test_slices_have_64_devices() -> None:
    assert DEVICES_OF_A_SLICE == 64
