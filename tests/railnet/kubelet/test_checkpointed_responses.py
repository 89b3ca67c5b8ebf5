"""The device plugin's answers, read from kubelet's checkpoint."""

import base64
import json

import pytest

from railnet.kubelet import checkpoint
from railnet.kubelet.api import deviceplugin_pb2 as api
from railnet.kubelet.checkpointed_responses import ContainerAllocation, of_pod

RAIL = "rdma/ib_vf"
RESPONSE = api.ContainerAllocateResponse(
    envs={"NCCL_IB_HCA": "=mlx5_4:1:0"},
    devices=[api.DeviceSpec(host_path="/dev/infiniband/uverbs4", container_path="/dev/infiniband/uverbs4")],
)


def an_entry(uid: str = "uid-1", resource: str = RAIL, response: object = None, **changes: object) -> dict[str, object]:
    allocated = base64.b64encode(RESPONSE.SerializeToString()).decode() if response is None else response
    ids = {"0": ["0000:03:00.1"], "1": ["0000:83:00.1"]}
    return {"PodUID": uid, "ResourceName": resource, "DeviceIDs": ids, "AllocResp": allocated, **changes}


def parsed(*entries: dict[str, object]) -> tuple[ContainerAllocation, ...]:
    raw = json.dumps({"Data": {"PodDeviceEntries": entries}}).encode()
    return of_pod(checkpoint.listed(raw), "uid-1", frozenset({RAIL}))


def test_allocation_has_ids_device_nodes_and_environment() -> None:
    assert parsed(an_entry()) == (
        ContainerAllocation(
            frozenset({"0000:03:00.1", "0000:83:00.1"}),
            frozenset({"/dev/infiniband/uverbs4"}),
            {"NCCL_IB_HCA": "=mlx5_4:1:0"},
        ),
    )


def test_other_pods_and_other_resources_are_left_out() -> None:
    assert parsed(an_entry("uid-2"), an_entry(resource="nvidia.com/gpu")) == ()


@pytest.mark.parametrize("response", ["", 5])
def test_entry_without_an_answer_is_left_out(response: object) -> None:
    assert parsed(an_entry(response=response)) == ()


@pytest.mark.parametrize("response", ["no base64", base64.b64encode(b"\xff\xff").decode()])
def test_malformed_answer_is_refused(response: str) -> None:
    with pytest.raises(
        ValueError, match="checkpoint is not understood: an AllocResp is not a ContainerAllocateResponse"
    ):
        parsed(an_entry(response=response))


def test_answers_of_other_pods_are_not_decoded() -> None:
    assert parsed(an_entry("uid-2", response="no base64")) == ()
