"""A simulated kubelet, as far as a device plugin and a driver of DRA see it: plugin watcher, device manager, checkpoint, pod-resources.

`runtime` has the sandboxes; `node` calls kubelet and runtime in the order that a pod needs.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from railnet.kubelet.api import deviceplugin_pb2 as api
from railnet.kubelet.api import pluginregistration_pb2
from simnode.kubernetes import checkpoint
from simnode.kubernetes.dra_manager import DraManager
from simnode.kubernetes.plugin_endpoint import PluginEndpoint
from simnode.kubernetes.plugin_watcher import PluginWatcher
from simnode.kubernetes.podresources import PodEntry, PodResourcesServer

_VERSION = "v1beta1"
_DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")  # whatever the root (k8s.io/kubelet, DevicePluginPath)


class UnexpectedAdmissionError(RuntimeError):
    """kubelet does not admit the pod, which becomes Failed: the devices that it requests are not available."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Name, namespace and UID of a pod."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """The devices that kubelet has allocated to one container of a pod."""

    pod: PodIdentity
    entry: checkpoint.CheckpointEntry

    @property
    def device_ids(self) -> tuple[str, ...]:
        """The ids of the devices, as the plugin advertised them."""
        return self.entry.ids()

    @property
    def response(self) -> api.ContainerAllocateResponse:
        """The plugin's answer to Allocate: device nodes and environment."""
        return api.ContainerAllocateResponse.FromString(self.entry.response)


class Kubelet:
    """A kubelet with the root folder `root`; `start` starts it. Its allocations survive `stop` and `start`."""

    def __init__(self, root: Path = Path("/var/lib/kubelet")) -> None:
        self._root = root
        self.dra = DraManager(root)
        self._changed = threading.Condition(threading.RLock())
        self._endpoints: dict[str, PluginEndpoint] = {}
        self._allocations: list[Allocation] = []
        self._removed: set[str] = set()
        self._running = contextlib.ExitStack()
        self._pod_resources: PodResourcesServer | None = None

    @property
    def checkpoint_path(self) -> Path:
        """The path of the device manager's checkpoint."""
        return _DEVICE_PLUGINS / "kubelet_internal_checkpoint"

    @property
    def pod_resources(self) -> PodResourcesServer:
        """The pod-resources server, with its counters."""
        if self._pod_resources is None:
            raise RuntimeError("there is no pod-resources server, because kubelet does not run: call start() first")
        return self._pod_resources

    def start(self) -> None:
        """Make kubelet's folders, serve pod-resources and watch for plugins."""
        registry = self._root / "plugins_registry"
        for folder in (registry, _DEVICE_PLUGINS):
            folder.mkdir(parents=True, exist_ok=True)
        for child in _DEVICE_PLUGINS.iterdir():
            if child != self.checkpoint_path and not child.is_dir():
                child.unlink()
        pod_resources = self._root / "pod-resources/kubelet.sock"
        self._pod_resources = PodResourcesServer(pod_resources, self._listed, self.dra.listed, self._root / "simnode")
        self._running.callback(self._pod_resources.close)
        self.dra.start()
        watcher = PluginWatcher(registry, self._register, self._deregister)
        self._running.callback(watcher.close)

    def stop(self) -> None:
        """Stop as for a restart of kubelet: plugins lose their streams, pods continue to run."""
        self._running.close()
        self.dra.stop()
        for resource in list(self._endpoints):
            self._endpoints.pop(resource).close()
        self._pod_resources = None

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Make kubelet write no file inside this block, so that its files can be read at rest."""
        with self._changed:
            yield

    def wait_for_devices(self, resource: str, count: int, seconds: float) -> None:
        """Wait until a resource has exactly `count` healthy devices.

        Raises:
            TimeoutError: the resource has another number of healthy devices after `seconds`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.healthy(resource)) == count, seconds):
                found = len(self.healthy(resource))
                raise TimeoutError(f"{resource} has {found} healthy devices after {seconds} s, not {count}")

    def healthy(self, resource: str) -> list[str]:
        """Return the ids of a resource's healthy devices, including those in use; an unknown resource has none."""
        endpoint = self._endpoints.get(resource)
        return endpoint.healthy() if endpoint else []

    def allocate(self, pod: PodIdentity, resource: str, count: int, container: str = "main") -> Allocation:
        """Admit a container: choose devices, call Allocate, and write the checkpoint.

        Raises:
            UnexpectedAdmissionError: the resource is unknown or has too few healthy free devices.
            grpc.RpcError: the plugin refuses Allocate.
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
            entry = checkpoint.CheckpointEntry(pod.uid, container, resource, endpoint.by_numa_node(ids), response)
            allocation = Allocation(pod, entry)
            self._allocations.append(allocation)
            self._write_checkpoint()
            return allocation

    def claim(self, pod: PodIdentity, resource: str, ids: Iterable[str], container: str = "main") -> None:
        """Write into the checkpoint that a pod has devices, without Allocate and even if another pod has them."""
        with self._changed:
            entry = checkpoint.CheckpointEntry(pod.uid, container, resource, {-1: list(ids)}, b"")
            self._allocations.append(Allocation(pod, entry))
            self._write_checkpoint()

    def pre_start(self, pod: PodIdentity) -> None:
        """Call PreStartContainer for the devices of a pod, if the plugin requires it."""
        for allocation in self.allocations(pod):
            endpoint = self._endpoints.get(allocation.entry.resource)
            if endpoint is None:
                raise UnexpectedAdmissionError(f"endpoint not found in cache for {allocation.entry.resource}")
            endpoint.pre_start(allocation.device_ids)

    def allocations(self, pod: PodIdentity) -> list[Allocation]:
        """Return the allocations of a pod."""
        return [allocation for allocation in self._allocations if allocation.pod == pod]

    def remove(self, pod: PodIdentity) -> None:
        """Remove a terminated pod: as in the real kubelet, its devices are free at once, and the checkpoint follows later."""
        with self._changed:
            self._removed.add(pod.uid)

    def _forget_removed(self) -> None:
        self._allocations = [kept for kept in self._allocations if kept.pod.uid not in self._removed]
        self._removed.clear()

    def _register(self, info: pluginregistration_pb2.PluginInfo) -> None:
        if info.type == "DRAPlugin":
            self.dra.register(info.name, info.endpoint, info.supported_versions)
            return
        if info.type != "DevicePlugin":
            raise ValueError(f"no handler registered for plugin type {info.type!r}")
        if _VERSION not in info.supported_versions:
            raise ValueError(f"plugin {info.name!r} supports {list(info.supported_versions)}, not {_VERSION}")
        endpoint = PluginEndpoint(info.name, info.endpoint, self._update)
        with self._changed:
            previous, self._endpoints[info.name] = self._endpoints.get(info.name), endpoint
            self._changed.notify_all()
        if previous is not None:
            previous.close()

    def _deregister(self, path: Path) -> None:
        self.dra.deregister(str(path))
        with self._changed:
            gone = [endpoint for endpoint in self._endpoints.values() if endpoint.socket_path == str(path)]
        for endpoint in gone:  # kubelet keeps the endpoint, and all its devices are unhealthy
            endpoint.close()

    def _update(self) -> None:
        """Note a change of devices; kubelet only logs that it cannot write (pkg/kubelet/cm/devicemanager, genericDeviceUpdateCallback)."""
        with self._changed:
            with contextlib.suppress(FileNotFoundError):  # a test has removed the folder
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
