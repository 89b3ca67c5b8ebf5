"""A pod as far as it tells about training: parsed once, from the JSON that the API server sends or the YAML of a file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vf.errors import Misconfigured

# A static pod's image in the API server: kubelet runs what its file says, whatever is changed here.
_MIRROR = "kubernetes.io/config.mirror"
_OS = "kubernetes.io/os"

# nvidia.com also names network devices (hostdev, resources of its RDMA plugin), so not everything of that domain is a GPU.
_NVIDIA = "nvidia.com"
_NVIDIA_SHARED = ("gpu.shared", "mig-")
# By the kernel driver. What else stands there counts thousandths, tiles or memory of one, or is access to all for a monitor.
_INTEL = ("gpu.intel.com/i915", "gpu.intel.com/xe")
# Devices, where the domain also has memory and cores of them: volcano-sh/volcano, VolcanoGPUNumber in devices/nvidia/gpushare/type.go
# and docs/user-guide/how_to_use_volcano_vgpu.md; docs.habana.ai, "Intel Gaudi Device Plugin for Kubernetes".
_BY_NAME = (*_INTEL, "volcano.sh/gpu-number", "volcano.sh/vgpu-number", "habana.ai/gaudi")
# One name for each chip, and for each fixed part of one (Ascend910-8c): volcano-sh/volcano, docs/user-guide/how_to_use_vnpu.md
_ASCEND = "huawei.com/Ascend"
_ASCEND_SHARES = ("-memory", "-core")

_LONGEST_COUNT = len(str(2**63 - 1))  # k8s.io/apimachinery/pkg/api/resource: maxAllowed


@dataclass(frozen=True, slots=True)
class Container:
    """A container of `spec.containers`, or an init container that is a sidecar; other init containers keep no VF.

    Attributes:
        env: the variables that are set by name; None where a value comes from elsewhere (`valueFrom`).
        env_from: whether more are taken from ConfigMaps or Secrets, which cannot be seen here.
        resources: limits and requests united, as written; where both stand, the limit.
    """

    name: str
    env: Mapping[str, str | None]
    env_from: bool
    resources: Mapping[str, str]

    @property
    def gpus(self) -> int:
        """Count the GPUs it asks for."""
        return sum(count(quantity) for resource, quantity in self.resources.items() if is_gpu(resource))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod; `name` is its `generateName` where it has no name yet, `owner` the name of its controller, `subdomain` its headless Service.

    `windows`: it says that it runs there, where no node has a rail. `sidecars`: the init containers that live as long as the pod,
    and so keep their VFs; none of them trains.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[Container, ...]
    host_network: bool = False
    owner: str | None = None
    subdomain: str | None = None
    windows: bool = False
    sidecars: tuple[Container, ...] = ()

    @property
    def mirror(self) -> bool:
        """Return whether it stands for a static pod."""
        return _MIRROR in self.annotations

    def read(self, key: str) -> str | None:
        """Return a label, or an annotation of the same name: operators and Kubernetes versions differ in which they write."""
        return self.labels.get(key, self.annotations.get(key))


def is_gpu(resource: str) -> bool:
    """Return whether an extended resource is a GPU or what trains in its place, or a part of one.

    `<vendor>/gpu`, NVIDIA's MIG and shared ones, Intel's, Volcano's, Gaudi, Ascend; not what counts their memory or cores.
    """
    domain, _, name = resource.partition("/")
    if resource.startswith(_ASCEND):
        return not resource.endswith(_ASCEND_SHARES)
    return name == "gpu" or (domain == _NVIDIA and name.startswith(_NVIDIA_SHARED)) or resource in _BY_NAME


def count(quantity: str) -> int:
    """Read the quantity of an extended resource, which Kubernetes lets be whole numbers only.

    One with a suffix (`1k`), or beyond what Kubernetes counts to, is no count of anything a node has: it counts as 1.
    """
    return int(quantity) if quantity.isdecimal() and len(quantity) <= _LONGEST_COUNT else 1


def parse(document: Any) -> Pod:
    """Read a pod.

    Raises:
        Misconfigured: it is none; the message names the field. The API server lets no such pod through to a webhook.
    """
    pod = _mapping(document, "the pod")
    metadata = _mapping(pod.get("metadata"), "metadata")
    spec = _mapping(pod.get("spec"), "spec")
    containers = tuple(_container(entry, path) for entry, path in _entries(spec.get("containers"), "spec.containers"))
    if not containers:
        raise Misconfigured("spec.containers is empty; it should have at least one container")
    return Pod(
        name=_text(metadata.get("name") or metadata.get("generateName") or "", "metadata.name"),
        namespace=_text(metadata.get("namespace") or "", "metadata.namespace"),
        labels=_texts(metadata.get("labels"), "metadata.labels"),
        annotations=_texts(metadata.get("annotations"), "metadata.annotations"),
        containers=containers,
        host_network=spec.get("hostNetwork") is True,
        owner=_controller(metadata.get("ownerReferences")),
        subdomain=_text(spec.get("subdomain") or "", "spec.subdomain") or None,
        windows=_is_windows(spec),
        sidecars=tuple(_sidecars(spec.get("initContainers"))),
    )


def _sidecars(init: Any) -> Iterator[Container]:
    for entry, path in _entries(init, "spec.initContainers"):
        if _mapping(entry, path).get("restartPolicy") == "Always":  # Kubernetes 1.28 and newer
            yield _container(entry, path)


def _is_windows(spec: dict[str, Any]) -> bool:
    chosen = (
        _mapping(spec.get("os"), "spec.os").get("name"),
        _mapping(spec.get("nodeSelector"), "spec.nodeSelector").get(_OS),
    )
    return "windows" in chosen


def _container(entry: Any, path: str) -> Container:
    container = _mapping(entry, path)
    resources = _mapping(container.get("resources"), f"{path}.resources")
    asked = {
        **_mapping(resources.get("requests"), f"{path}.resources.requests"),
        **_mapping(resources.get("limits"), f"{path}.resources.limits"),
    }
    variables = [_mapping(*variable) for variable in _entries(container.get("env"), f"{path}.env")]
    return Container(
        name=_text(container.get("name"), f"{path}.name"),
        env={_text(variable.get("name"), f"{path}.env"): _value(variable, path) for variable in variables},
        env_from=bool(container.get("envFrom")),
        resources={str(resource): str(quantity) for resource, quantity in asked.items()},
    )


def _value(variable: dict[str, Any], path: str) -> str | None:
    if variable.get("valueFrom") is not None:
        return None
    return _text(variable.get("value") or "", f"{path}.env")


def _controller(references: Any) -> str | None:
    for reference, path in _entries(references, "metadata.ownerReferences"):
        if _mapping(reference, path).get("controller") is True:
            return _text(reference.get("name"), f"{path}.name")
    return None


def _entries(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Return a list's entries, each with its path; null is an empty list, as for the API server."""
    if not isinstance(value, list | None):
        raise Misconfigured(f"{path} is {value!r:.60}; it should be a list")
    for position, entry in enumerate(value or ()):
        yield entry, f"{path}[{position}]"


def _mapping(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict | None):
        raise Misconfigured(f"{path} is {value!r:.60}; it should be a mapping")
    return value or {}


def _texts(value: Any, path: str) -> dict[str, str]:
    return {str(key): _text(entry, f"{path}.{key}") for key, entry in _mapping(value, path).items()}


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise Misconfigured(f"{path} is {value!r:.60}; it should be a string (quote numbers)")
    return value
