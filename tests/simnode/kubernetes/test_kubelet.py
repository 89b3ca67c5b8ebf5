import base64
import json
import os
import socket
import threading
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from railnet.kubelet.api import deviceplugin_pb2 as api
from railnet.kubelet.api import (
    deviceplugin_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
    podresources_pb2,
    podresources_pb2_grpc,
)
from simnode.kubernetes.kubelet import Kubelet, PodIdentity, UnexpectedAdmissionError
from simnode.waiting import wait_until

POD = PodIdentity("worker-0", "team", "11111111-2222-3333-4444-555555555555")


class FakePlugin(deviceplugin_pb2_grpc.DevicePluginServicer, pluginregistration_pb2_grpc.RegistrationServicer):
    """Advertises two devices on NUMA node 1 and one without topology."""

    def __init__(self, folder, preferred=None):
        self.statuses, self.started, self.ended = [], [], threading.Event()
        self.preferred = preferred
        self.socket = folder / "fake.sock"
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        deviceplugin_pb2_grpc.add_DevicePluginServicer_to_server(self, self._server)
        pluginregistration_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        hidden = folder / ".fake.sock"
        self._server.add_insecure_port(f"unix:{hidden}")
        self._server.start()
        os.link(hidden, self.socket)

    def close(self):
        self.socket.unlink(missing_ok=True)
        self.ended.set()
        self._server.stop(None).wait()

    def GetInfo(self, request, context):
        return pluginregistration_pb2.PluginInfo(
            type="DevicePlugin", name="test/vf", endpoint=str(self.socket), supported_versions=["v1beta1"]
        )

    def NotifyRegistrationStatus(self, request, context):
        self.statuses.append(request.plugin_registered)
        return pluginregistration_pb2.RegistrationStatusResponse()

    def GetDevicePluginOptions(self, request, context):
        has_preference = self.preferred is not None
        return api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=has_preference)

    def ListAndWatch(self, request, context):
        topology = api.TopologyInfo(nodes=[api.NUMANode(ID=1)])
        devices = [api.Device(ID=name, health="Healthy", topology=topology) for name in ("a", "b")]
        yield api.ListAndWatchResponse(devices=[*devices, api.Device(ID="c", health="Healthy")])
        self.ended.wait()

    def GetPreferredAllocation(self, request, context):
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=self.preferred)]
        )

    def Allocate(self, request, context):
        response = api.ContainerAllocateResponse(envs={"IDS": ",".join(request.container_requests[0].devices_ids)})
        return api.AllocateResponse(container_responses=[response])

    def PreStartContainer(self, request, context):
        self.started.append(list(request.devices_ids))
        return api.PreStartContainerResponse()


@pytest.fixture
def kubelet():
    kubelet = Kubelet()
    kubelet.start()
    yield kubelet
    kubelet.stop()


@pytest.fixture
def plugin(kubelet):
    plugin = FakePlugin(Path("/var/lib/kubelet/plugins_registry"))
    yield plugin
    plugin.close()


@pytest.fixture
def plugin_with_preference(kubelet):
    plugin = FakePlugin(Path("/var/lib/kubelet/plugins_registry"), preferred=["c", "b"])
    yield plugin
    plugin.close()


def checkpoint(kubelet):
    return json.loads(kubelet.checkpoint_path.read_bytes())


def test_kubelet_finds_a_plugin_and_notifies_it_of_its_registration(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)

    # kubelet knows the devices before it notifies the plugin.
    wait_until(lambda: plugin.statuses == [True], 60, "the notification")
    assert kubelet.healthy("test/vf") == ["a", "b", "c"]


def test_kubelet_ignores_a_hidden_socket_and_a_regular_file(kubelet):
    registry = Path("/var/lib/kubelet/plugins_registry")
    (registry / "no-socket.sock").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(registry / ".hidden.sock"))
        with pytest.raises(TimeoutError, match="0 healthy devices"):
            kubelet.wait_for_devices("test/vf", 3, 0.2)


def test_checkpoint_has_the_form_that_kubelet_writes(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)
    kubelet.allocate(POD, "test/vf", 3)

    data = checkpoint(kubelet)["Data"]
    response = api.ContainerAllocateResponse.FromString(base64.b64decode(data["PodDeviceEntries"][0].pop("AllocResp")))
    assert data == {
        "PodDeviceEntries": [
            {
                "PodUID": POD.uid,
                "ContainerName": "main",
                "ResourceName": "test/vf",
                "DeviceIDs": {"-1": ["c"], "1": ["a", "b"]},
            }
        ],
        "RegisteredDevices": {"test/vf": ["a", "b", "c"]},
    }
    assert response.envs == {"IDS": "a,b,c"}


def test_checkpoint_without_pods_has_null_entries(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)

    assert checkpoint(kubelet)["Data"]["PodDeviceEntries"] is None
    assert isinstance(checkpoint(kubelet)["Checksum"], int)


def test_kubelet_writes_nothing_inside_a_still_block(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)
    folder = kubelet.checkpoint_path.parent
    with kubelet.still():
        before = sorted(folder.iterdir()), kubelet.checkpoint_path.stat().st_ino
        claiming = threading.Thread(target=kubelet.claim, args=(POD, "test/vf", ["a"]))
        claiming.start()
        claiming.join(0.2)
        during = sorted(folder.iterdir()), kubelet.checkpoint_path.stat().st_ino
    claiming.join()

    assert during == before
    assert checkpoint(kubelet)["Data"]["PodDeviceEntries"][0]["PodUID"] == POD.uid


def test_device_is_allocated_once_and_again_after_its_pod_is_removed(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)
    kubelet.allocate(POD, "test/vf", 2)
    other = PodIdentity("other", "team", "uid-2")
    with pytest.raises(UnexpectedAdmissionError, match="requested 2 of test/vf, available 1"):
        kubelet.allocate(other, "test/vf", 2)
    kubelet.remove(POD)

    assert kubelet.allocate(other, "test/vf", 2).device_ids == ("a", "b")


@pytest.mark.parametrize(("count", "allocated"), [(1, {"c"}), (2, {"b", "c"}), (3, {"a", "b", "c"})])
def test_allocate_takes_preferred_devices_first(kubelet, plugin_with_preference, count, allocated):
    kubelet.wait_for_devices("test/vf", 3, 60)

    assert set(kubelet.allocate(POD, "test/vf", count).device_ids) == allocated


def test_allocate_ignores_a_preferred_device_that_is_not_free(kubelet, plugin_with_preference):
    kubelet.wait_for_devices("test/vf", 3, 60)
    kubelet.allocate(POD, "test/vf", 1)

    assert kubelet.allocate(PodIdentity("other", "team", "uid-2"), "test/vf", 1).device_ids == ("b",)


def test_unknown_resource_is_an_admission_error(kubelet):
    with pytest.raises(UnexpectedAdmissionError, match="unregistered"):
        kubelet.allocate(POD, "test/vf", 1)


def test_pre_start_is_called_with_the_devices_of_the_pod(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)
    kubelet.allocate(POD, "test/vf", 1)
    kubelet.pre_start(POD)

    assert plugin.started == [["a"]]


def test_devices_become_unhealthy_when_the_socket_is_removed(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)
    plugin.socket.unlink()

    kubelet.wait_for_devices("test/vf", 0, 60)


def test_restarted_kubelet_finds_the_plugin_and_keeps_its_pods(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)
    kubelet.allocate(POD, "test/vf", 1)
    kubelet.stop()
    kubelet.start()
    kubelet.wait_for_devices("test/vf", 3, 60)

    assert [allocation.device_ids for allocation in kubelet.allocations(POD)] == [("a",)]
    assert checkpoint(kubelet)["Data"]["PodDeviceEntries"][0]["PodUID"] == POD.uid


def test_pod_resources_lists_pods_and_counts_connections_and_calls(kubelet, plugin):
    kubelet.wait_for_devices("test/vf", 3, 60)
    kubelet.allocate(POD, "test/vf", 1)
    unused = kubelet.pod_resources.use
    with grpc.insecure_channel("unix:/var/lib/kubelet/pod-resources/kubelet.sock") as channel:
        stub = podresources_pb2_grpc.PodResourcesListerStub(channel)
        answer = stub.List(podresources_pb2.ListPodResourcesRequest(), timeout=60, wait_for_ready=True)

    assert unused == (0, 0)
    assert kubelet.pod_resources.use == (1, 1)
    assert answer.pod_resources[0].name == "worker-0"
    assert list(answer.pod_resources[0].containers[0].devices[0].device_ids) == ["a"]


def test_pod_resources_counts_a_connection_without_a_call(kubelet):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/var/lib/kubelet/pod-resources/kubelet.sock")
        client.settimeout(60)
        client.recv(1)

    assert kubelet.pod_resources.use == (1, 0)
