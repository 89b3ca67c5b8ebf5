"""GPUs among the resources of a container."""

import pytest

from railnet.jobs.gpus import gpu_count, is_gpu
from railnet.objects.pod import parse

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


def test_limit_counts_if_a_resource_has_limit_and_request():
    resources = {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": "2"}}
    pod = parse({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}})

    assert gpu_count(pod.containers[0]) == 2
