"""Reading a pod: GPUs among its resources, quantities, and the fields that operators write."""

import pytest

from railnet.jobs.operator_fields import AddressCount, ControllerName, Either, Env, First, Key
from railnet.jobs.pod import count, is_gpu, parse
from tests.railnet.jobs.builders import a_container, a_pod

GPUS = {
    "nvidia.com/gpu": True,
    "amd.com/gpu": True,
    "example.com/gpu": True,
    "nvidia.com/gpu.shared": True,
    "nvidia.com/mig-1g.5gb": True,
    "gpu.intel.com/i915": True,
    "gpu.intel.com/xe": True,
    "gpu.intel.com/i915_monitoring": False,
    "gpu.intel.com/millicores": False,
    "volcano.sh/gpu-number": True,
    "volcano.sh/vgpu-number": True,
    "volcano.sh/gpu-memory": False,
    "volcano.sh/vgpu-memory": False,
    "volcano.sh/vgpu-memory-percentage": False,
    "volcano.sh/vgpu-cores": False,
    "habana.ai/gaudi": True,
    "huawei.com/Ascend910": True,
    "huawei.com/Ascend910B4-1": True,
    "huawei.com/Ascend910-8c": True,
    "huawei.com/Ascend910B3-memory": False,
    "huawei.com/Ascend910B3-core": False,
    "huawei.com/npu-core": False,
    "nvidia.com/hostdev": False,
    "nvidia.com/rdma_shared_devices": False,
    "rdma/ib_vf": False,
    "cpu": False,
    "gpu": False,
    "example.com/gpus": False,
    "requests.nvidia.com/gpu": True,
}


@pytest.mark.parametrize(("resource", "expected"), GPUS.items())
def test_gpu_is_recognised_by_its_resource(resource: str, expected: bool):
    assert is_gpu(resource) is expected


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [("0", 0), ("1", 1), ("16", 16), ("1k", 1), ("9223372036854775807", 2**63 - 1), ("9" * 5000, 1)],
    ids=lambda value: f"{value:.20}" if isinstance(value, str) else None,
)
def test_quantity_is_read_as_a_number(quantity: str, expected: int):
    assert count(quantity) == expected


def test_limit_counts_if_a_resource_has_limit_and_request():
    resources = {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": "2"}}
    pod = parse({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}})

    assert pod.containers[0].gpus == 2


def test_name_is_the_generate_name_if_the_pod_has_no_name():
    pod = parse({"metadata": {"generateName": "job-0-"}, "spec": {"containers": [{"name": "c"}]}})

    assert pod.name == "job-0-"


def test_owner_is_the_controller_among_the_owners():
    owners = [{"name": "gang", "controller": False}, {"name": "job", "controller": True}]
    pod = parse({"metadata": {"ownerReferences": owners}, "spec": {"containers": [{"name": "c"}]}})

    assert pod.owner == "job"


def test_key_reads_the_label_before_the_annotation():
    pod = a_pod(labels={"a": "label"}, annotations={"a": "annotation", "b": "annotation"})

    assert [Key(name).read(pod, a_container()) for name in "abc"] == ["label", "annotation", None]


@pytest.mark.parametrize(("value", "expected"), [("4", "4"), ("1:4", "4"), (None, None)])
def test_env_reads_a_number_or_the_end_of_a_range(value: str | None, expected: str | None):
    assert Env("PET_NNODES").read(a_pod(), a_container(env={"PET_NNODES": value})) == expected


TF_CONFIGS = {
    '{"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"]}}': "3",
    '{"cluster": {"ps": ["a:1"], "worker": {"1": "c:1"}}}': None,
    '{"cluster": {}}': None,
    '{"cluster": 3}': None,
    "{}": None,
    "[]": None,
    "{": None,
    "[" * 100_000: None,
}


@pytest.mark.parametrize(("text", "expected"), TF_CONFIGS.items(), ids=lambda value: f"{value:.40}" if value else None)
def test_address_count_is_none_unless_tf_config_is_complete(text: str, expected: str | None):
    assert AddressCount("TF_CONFIG").read(a_pod(), a_container(env={"TF_CONFIG": text})) == expected


def test_first_reads_the_first_field_with_a_text():
    pod = a_pod(labels={"empty": "", "b": "2"})

    assert First(Key("none"), Key("empty"), Key("b")).read(pod, a_container()) == "2"
    assert First(Key("none")).read(pod, a_container()) is None


def test_either_reads_one_of_two_texts_by_a_key():
    leader = Either("index", "0", "leader", "worker")

    assert leader.read(a_pod(labels={"index": "0"}), a_container()) == "leader"
    assert leader.read(a_pod(labels={"index": "1"}), a_container()) == "worker"
    assert leader.read(a_pod(), a_container()) == "worker"


def test_controller_name_is_the_pods_name_without_a_controller():
    assert ControllerName().read(a_pod(owner="job"), a_container()) == "job"
    assert ControllerName().read(a_pod(name="solo-"), a_container()) == "solo"
