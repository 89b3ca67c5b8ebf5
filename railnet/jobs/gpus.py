"""GPUs and other accelerators for training: which extended resources they are, and how many a container asks for."""

from railnet.objects.pod import Container
from railnet.objects.quantity import count

# The domain nvidia.com also has network devices (hostdev, resources of its RDMA plugin), so not all of its resources are GPUs.
_NVIDIA = "nvidia.com"
_NVIDIA_SHARED = ("gpu.shared", "mig-")
# GPUs by their kernel driver. Other resources of this domain count thousandths, tiles or memory, or give a monitor access to all GPUs.
_INTEL = ("gpu.intel.com/i915", "gpu.intel.com/xe")
# Whole devices of domains that also have resources for memory and cores: volcano-sh/volcano, VolcanoGPUNumber in
# devices/nvidia/gpushare/type.go and docs/user-guide/how_to_use_volcano_vgpu.md; docs.habana.ai, "Intel Gaudi Device Plugin for Kubernetes".
_BY_NAME = (*_INTEL, "volcano.sh/gpu-number", "volcano.sh/vgpu-number", "habana.ai/gaudi")
# Each chip has a resource, and each fixed part of a chip (Ascend910-8c): volcano-sh/volcano, docs/user-guide/how_to_use_vnpu.md
_ASCEND = "huawei.com/Ascend"
_ASCEND_SHARES = ("-memory", "-core")


def is_gpu(resource: str) -> bool:
    """Return whether an extended resource is a GPU, another accelerator for training, or a part of one.

    These are `<vendor>/gpu`, NVIDIA's MIG and shared GPUs, Intel's, Volcano's, Gaudi, Ascend; not resources that count memory or cores.
    """
    domain, _, name = resource.partition("/")
    if resource.startswith(_ASCEND):
        return not resource.endswith(_ASCEND_SHARES)
    return name == "gpu" or (domain == _NVIDIA and name.startswith(_NVIDIA_SHARED)) or resource in _BY_NAME


def gpu_count(container: Container) -> int:
    """Return the number of GPUs that a container asks for."""
    return sum(count(quantity) for resource, quantity in container.resources.items() if is_gpu(resource))
