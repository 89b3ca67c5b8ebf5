"""kubelet as a device plugin sees it: the plugin watcher, the device manager and its checkpoint, pod-resources.

What a pod's sandbox is belongs to `runtime`; the order of a pod's life is in `node`.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kubelet.api import deviceplugin_pb2 as api
from kubelet.api import pluginregistration_pb2
from simnode.kubernetes import checkpoint
from simnode.kubernetes.plugin_endpoint import Endpoint
from simnode.kubernetes.plugin_watcher import PluginWatcher
from simnode.kubernetes.podresources import PodEntry, PodResourcesServer

_VERSION = "v1beta1"


class UnexpectedAdmissionError(RuntimeError):
    """The pod is not admitted and becomes Failed: the devices it asks for cannot be had."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """A pod by its names."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one container of a pod was given."""

    pod: PodIdentity
    entry: checkpoint.Entry

    @property
    def device_ids(self) -> tuple[str, ...]:
        """The devices, ids as the plugin advertised them."""
        return self.entry.ids()

    @property
    def response(self) -> api.ContainerAllocateResponse:
        """The plugin's answer: device nodes, environment."""
        return api.ContainerAllocateResponse.FromString(self.entry.response)


class Kubelet:
    """A kubelet with its files below `root`; made stopped. What it knows of pods survives `stop` and `start`."""

    def __init__(self, root: Path = Path("/var/lib/kubelet")) -> None:
        self._root = root
        self._changed = threading.Condition(threading.RLock())
        self._endpoints: dict[str, Endpoint] = {}
        self._allocations: list[Allocation] = []
        self._removed: set[str] = set()
        self._running = contextlib.ExitStack()
        self._pod_resources: PodResourcesServer | None = None

    @property
    def checkpoint_path(self) -> Path:
        """The device manager's checkpoint."""
        return self._root / "device-plugins/kubelet_internal_checkpoint"

    @property
    def pod_resources(self) -> PodResourcesServer:
        """The pod-resources server, with its counts."""
        if self._pod_resources is None:
            raise RuntimeError("kubelet is not running: start() it first")
        return self._pod_resources

    def start(self) -> None:
        """Make kubelet's folders, serve pod-resources and look for plugins."""
        registry, device_plugins = self._root / "plugins_registry", self._root / "device-plugins"
        for folder in (registry, device_plugins):
            folder.mkdir(parents=True, exist_ok=True)
        for child in device_plugins.iterdir():
            if child != self.checkpoint_path and not child.is_dir():
                child.unlink()
        pod_resources = self._root / "pod-resources/kubelet.sock"
        self._pod_resources = PodResourcesServer(pod_resources, self._listed, self._root / "simnode")
        self._running.callback(self._pod_resources.close)
        watcher = PluginWatcher(registry, self._register, self._deregister)
        self._running.callback(watcher.close)

    def stop(self) -> None:
        """End, as kubelet does when it is restarted: plugins lose their streams, pods go on."""
        self._running.close()
        for resource in list(self._endpoints):
            self._endpoints.pop(resource).close()
        self._pod_resources = None

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Have kubelet write nothing for as long as somebody looks at its files."""
        with self._changed:
            yield

    def wait_for_devices(self, resource: str, count: int, seconds: float) -> None:
        """Wait until a resource has exactly `count` healthy devices.

        Raises:
            TimeoutError: it has not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.healthy(resource)) == count, seconds):
                found = len(self.healthy(resource))
                raise TimeoutError(f"{resource} has {found} healthy devices after {seconds} s, not {count}")

    def healthy(self, resource: str) -> list[str]:
        """Return the ids that may be allocated, those in use included; an unknown resource has none."""
        endpoint = self._endpoints.get(resource)
        return endpoint.healthy() if endpoint else []

    def allocate(self, pod: PodIdentity, resource: str, count: int, container: str = "main") -> Allocation:
        """Admit a container: choose devices, call Allocate, and write the checkpoint.

        Raises:
            UnexpectedAdmissionError: the resource is unknown or has too few healthy free devices.
            grpc.RpcError: the plugin refuses.
        """
        with self._changed:
            self._forget_removed()
            endpoint = self._endpoints.get(resource)
            if endpoint is None:
                raise UnexpectedAdmissionError(f"cannot allocate unregistered device {resource}")
            used = {device for allocation in self._allocations for device in allocation.device_ids}
            free = [device for device in endpoint.healthy() if device not in used]
            if len(free) < count:
                raise UnexpectedAdmissionError(f"requested {count} of {resource}, available {len(free)}")
            ids = endpoint.preferred(free, count)
            response = endpoint.allocate(ids).SerializeToString()
            entry = checkpoint.Entry(pod.uid, container, resource, endpoint.by_numa_node(ids), response)
            allocation = Allocation(pod, entry)
            self._allocations.append(allocation)
            self._write_checkpoint()
            return allocation

    def claim(self, pod: PodIdentity, resource: str, ids: Iterable[str], container: str = "main") -> None:
        """Write into the checkpoint that a pod has devices which nobody gave it, whoever else has them."""
        with self._changed:
            entry = checkpoint.Entry(pod.uid, container, resource, {-1: list(ids)}, b"")
            self._allocations.append(Allocation(pod, entry))
            self._write_checkpoint()

    def pre_start(self, pod: PodIdentity) -> None:
        """Call PreStartContainer for what the pod was given, where the plugin asks for it."""
        for allocation in self.allocations(pod):
            endpoint = self._endpoints.get(allocation.entry.resource)
            if endpoint is None:
                raise UnexpectedAdmissionError(f"endpoint not found in cache for {allocation.entry.resource}")
            endpoint.pre_start(allocation.device_ids)

    def allocations(self, pod: PodIdentity) -> list[Allocation]:
        """Return what a pod holds."""
        return [allocation for allocation in self._allocations if allocation.pod == pod]

    def remove(self, pod: PodIdentity) -> None:
        """Forget a terminated pod: as with the real one its devices are free at once, the checkpoint is rewritten later."""
        with self._changed:
            self._removed.add(pod.uid)

    def _forget_removed(self) -> None:
        self._allocations = [kept for kept in self._allocations if kept.pod.uid not in self._removed]
        self._removed.clear()

    def _register(self, info: pluginregistration_pb2.PluginInfo) -> None:
        if info.type != "DevicePlugin":
            raise ValueError(f"no handler registered for plugin type {info.type!r}")
        if _VERSION not in info.supported_versions:
            raise ValueError(f"plugin {info.name!r} supports {list(info.supported_versions)}, not {_VERSION}")
        endpoint = Endpoint(info.name, info.endpoint, self._update)
        with self._changed:
            previous, self._endpoints[info.name] = self._endpoints.get(info.name), endpoint
            self._changed.notify_all()
        if previous is not None:
            previous.close()

    def _deregister(self, path: Path) -> None:
        with self._changed:
            gone = [endpoint for endpoint in self._endpoints.values() if endpoint.socket_path == str(path)]
        for endpoint in gone:  # it stays known, all its devices unhealthy
            endpoint.close()

    def _update(self) -> None:
        with self._changed:
            self._write_checkpoint()
            self._changed.notify_all()

    def _write_checkpoint(self) -> None:
        registered = {resource: endpoint.healthy() for resource, endpoint in sorted(self._endpoints.items())}
        entries = [allocation.entry for allocation in self._allocations if allocation.pod.uid not in self._removed]
        checkpoint.write(self.checkpoint_path, checkpoint.encode(entries, registered))

    def _listed(self) -> Iterable[PodEntry]:
        for allocation in tuple(self._allocations):
            pod, entry = allocation.pod, allocation.entry
            yield PodEntry(pod.namespace, pod.name, entry.container, entry.resource, entry.ids())


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for something no event tells of.

    Raises:
        TimeoutError: it did not happen; `what` says what should have.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {seconds} s")
        time.sleep(0.005)
