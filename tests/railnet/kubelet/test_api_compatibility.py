"""Railnet's API definitions compared with kubelet's: field numbers as a table, messages as bytes written by hand.

Source of the table: kubernetes/kubelet v0.36.3, pkg/apis/{deviceplugin/v1beta1,podresources/v1,pluginregistration/v1}; and v0.37.2, pkg/apis/{dra/v1,
dra-health/v1alpha1}; for `cri`, of which Railnet has a part, kubernetes/cri-api v0.36.3, pkg/apis/runtime/v1.
"""

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from railnet.kubelet.api import cri_pb2 as cri
from railnet.kubelet.api import deviceplugin_pb2 as deviceplugin
from railnet.kubelet.api import dra_pb2 as dra
from railnet.kubelet.api import drahealth_pb2 as drahealth
from railnet.kubelet.api import pluginregistration_pb2 as pluginregistration
from railnet.kubelet.api import podresources_pb2 as podresources

MESSAGES = {
    "v1beta1": {
        "AllocateRequest": "1 repeated v1beta1.ContainerAllocateRequest container_requests",
        "AllocateResponse": "1 repeated v1beta1.ContainerAllocateResponse container_responses",
        "CDIDevice": "1 string name",
        "ContainerAllocateRequest": "1 repeated string devices_ids",
        "ContainerAllocateResponse": (
            "1 repeated v1beta1.ContainerAllocateResponse.EnvsEntry envs, 2 repeated v1beta1.Mount mounts, "
            "3 repeated v1beta1.DeviceSpec devices, "
            "4 repeated v1beta1.ContainerAllocateResponse.AnnotationsEntry annotations, "
            "5 repeated v1beta1.CDIDevice cdi_devices"
        ),
        "ContainerPreferredAllocationRequest": (
            "1 repeated string available_deviceIDs, 2 repeated string must_include_deviceIDs, 3 int32 allocation_size"
        ),
        "ContainerPreferredAllocationResponse": "1 repeated string deviceIDs",
        "Device": "1 string ID, 2 string health, 3 v1beta1.TopologyInfo topology",
        "DevicePluginOptions": "1 bool pre_start_required, 2 bool get_preferred_allocation_available",
        "DeviceSpec": "1 string container_path, 2 string host_path, 3 string permissions",
        "Empty": "",
        "ListAndWatchResponse": "1 repeated v1beta1.Device devices",
        "Mount": "1 string container_path, 2 string host_path, 3 bool read_only",
        "NUMANode": "1 int64 ID",
        "PreStartContainerRequest": "1 repeated string devices_ids",
        "PreStartContainerResponse": "",
        "PreferredAllocationRequest": "1 repeated v1beta1.ContainerPreferredAllocationRequest container_requests",
        "PreferredAllocationResponse": "1 repeated v1beta1.ContainerPreferredAllocationResponse container_responses",
        "RegisterRequest": (
            "1 string version, 2 string endpoint, 3 string resource_name, 4 v1beta1.DevicePluginOptions options"
        ),
        "TopologyInfo": "1 repeated v1beta1.NUMANode nodes",
    },
    "v1": {
        "AllocatableResourcesRequest": "",
        "AllocatableResourcesResponse": (
            "1 repeated v1.ContainerDevices devices, 2 repeated int64 cpu_ids, 3 repeated v1.ContainerMemory memory"
        ),
        "CDIDevice": "1 string name",
        "ClaimResource": (
            "1 repeated v1.CDIDevice cdi_devices, 2 string driver_name, 3 string pool_name, 4 string device_name, "
            "5 optional string share_id"
        ),
        "ContainerDevices": "1 string resource_name, 2 repeated string device_ids, 3 v1.TopologyInfo topology",
        "ContainerMemory": "1 string memory_type, 2 uint64 size, 3 v1.TopologyInfo topology",
        "ContainerResources": (
            "1 string name, 2 repeated v1.ContainerDevices devices, 3 repeated int64 cpu_ids, "
            "4 repeated v1.ContainerMemory memory, 5 repeated v1.DynamicResource dynamic_resources"
        ),
        "DynamicResource": (
            "2 string claim_name, 3 string claim_namespace, 4 repeated v1.ClaimResource claim_resources"
        ),
        "GetPodResourcesRequest": "1 string pod_name, 2 string pod_namespace",
        "GetPodResourcesResponse": "1 v1.PodResources pod_resources",
        "ListPodResourcesRequest": "",
        "ListPodResourcesResponse": "1 repeated v1.PodResources pod_resources",
        "NUMANode": "1 int64 ID",
        "PodResources": "1 string name, 2 string namespace, 3 repeated v1.ContainerResources containers",
        "TopologyInfo": "1 repeated v1.NUMANode nodes",
    },
    "pluginregistration": {
        "InfoRequest": "",
        "PluginInfo": "1 string type, 2 string name, 3 string endpoint, 4 repeated string supported_versions",
        "RegistrationStatus": "1 bool plugin_registered, 2 string error",
        "RegistrationStatusResponse": "",
    },
    "k8s.io.kubelet.pkg.apis.dra.v1": {
        "Claim": "1 string namespace, 2 string uid, 3 string name",
        "Device": (
            "1 repeated string request_names, 2 string pool_name, 3 string device_name, 4 repeated string cdi_device_ids, "
            "5 optional string share_id"
        ),
        "NodePrepareResourceResponse": "1 repeated k8s.io.kubelet.pkg.apis.dra.v1.Device devices, 2 string error",
        "NodePrepareResourcesRequest": "1 repeated k8s.io.kubelet.pkg.apis.dra.v1.Claim claims",
        "NodePrepareResourcesResponse": (
            "1 repeated k8s.io.kubelet.pkg.apis.dra.v1.NodePrepareResourcesResponse.ClaimsEntry claims"
        ),
        "NodeUnprepareResourceResponse": "1 string error",
        "NodeUnprepareResourcesRequest": "1 repeated k8s.io.kubelet.pkg.apis.dra.v1.Claim claims",
        "NodeUnprepareResourcesResponse": (
            "1 repeated k8s.io.kubelet.pkg.apis.dra.v1.NodeUnprepareResourcesResponse.ClaimsEntry claims"
        ),
    },
    "v1alpha1": {
        "DeviceHealth": (
            "1 v1alpha1.DeviceIdentifier device, 2 v1alpha1.HealthStatus health, 3 int64 last_updated_time, "
            "4 int64 health_check_timeout_seconds, 5 string message"
        ),
        "DeviceIdentifier": "1 string pool_name, 2 string device_name",
        "NodeWatchResourcesRequest": "",
        "NodeWatchResourcesResponse": "1 repeated v1alpha1.DeviceHealth devices",
    },
    "cri": {
        "ListPodSandboxRequest": "",
        "ListPodSandboxResponse": "1 repeated cri.PodSandbox items",
        "PodSandbox": "1 string id, 2 cri.PodSandboxMetadata metadata, 3 cri.PodSandboxState state",
        "PodSandboxMetadata": "2 string uid",
        "PodSandboxStatusRequest": "1 string pod_sandbox_id",
        "PodSandboxStatusResponse": "1 cri.PodSandboxStatus status",
        "PodSandboxStatus": (
            "2 cri.PodSandboxMetadata metadata, 3 cri.PodSandboxState state, 6 cri.LinuxPodSandboxStatus linux"
        ),
        "LinuxPodSandboxStatus": "1 cri.Namespace namespaces",
        "Namespace": "2 cri.NamespaceOption options",
        "NamespaceOption": "1 cri.NamespaceMode network",
    },
}
METHODS = {
    "v1beta1": {
        "DevicePlugin/GetDevicePluginOptions": "Empty -> DevicePluginOptions",
        "DevicePlugin/ListAndWatch": "Empty -> stream ListAndWatchResponse",
        "DevicePlugin/GetPreferredAllocation": "PreferredAllocationRequest -> PreferredAllocationResponse",
        "DevicePlugin/Allocate": "AllocateRequest -> AllocateResponse",
        "DevicePlugin/PreStartContainer": "PreStartContainerRequest -> PreStartContainerResponse",
        "Registration/Register": "RegisterRequest -> Empty",
    },
    "v1": {
        "PodResourcesLister/List": "ListPodResourcesRequest -> ListPodResourcesResponse",
        "PodResourcesLister/GetAllocatableResources": "AllocatableResourcesRequest -> AllocatableResourcesResponse",
        "PodResourcesLister/Get": "GetPodResourcesRequest -> GetPodResourcesResponse",
    },
    "pluginregistration": {
        "Registration/GetInfo": "InfoRequest -> PluginInfo",
        "Registration/NotifyRegistrationStatus": "RegistrationStatus -> RegistrationStatusResponse",
    },
    "k8s.io.kubelet.pkg.apis.dra.v1": {
        "DRAPlugin/NodePrepareResources": "NodePrepareResourcesRequest -> NodePrepareResourcesResponse",
        "DRAPlugin/NodeUnprepareResources": "NodeUnprepareResourcesRequest -> NodeUnprepareResourcesResponse",
    },
    "v1alpha1": {
        "DRAResourceHealth/NodeWatchResources": "NodeWatchResourcesRequest -> stream NodeWatchResourcesResponse",
    },
    "cri": {},  # railnet.kubelet.cri calls its methods by their paths
}
FILES = [
    deviceplugin.DESCRIPTOR,
    podresources.DESCRIPTOR,
    pluginregistration.DESCRIPTOR,
    dra.DESCRIPTOR,
    drahealth.DESCRIPTOR,
    cri.DESCRIPTOR,
]
TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def field_words(field: FieldDescriptor) -> str:
    optional = field.has_presence and field.message_type is None
    label = "repeated " if field.is_repeated else "optional " if optional else ""
    named = field.message_type or field.enum_type
    kind = named.full_name if named else TYPES[field.type]
    return f"{field.number} {label}{kind} {field.name}"


def message_words(message: Descriptor) -> str:
    return ", ".join(field_words(field) for field in sorted(message.fields, key=lambda field: field.number))


def method_words(service: ServiceDescriptor) -> dict[str, str]:
    return {
        f"{service.name}/{method.name}": (
            f"{method.input_type.name} -> {'stream ' if method.server_streaming else ''}{method.output_type.name}"
        )
        for method in service.methods
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.package)
def test_messages_have_the_fields_and_numbers_of_kubelet(file: FileDescriptor) -> None:
    ours = {name: message_words(message) for name, message in file.message_types_by_name.items()}

    assert ours == MESSAGES[file.package]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.package)
def test_services_have_the_methods_of_kubelet(file: FileDescriptor) -> None:
    services = file.services_by_name.values()
    ours = {path: words for service in services for path, words in method_words(service).items()}

    assert ours == METHODS[file.package]


WIRE = {
    "sandboxes": (cri.ListPodSandboxResponse(items=[cri.PodSandbox(id="c0ffee")]), b"\x0a\x08\x0a\x06c0ffee"),
    "plugin info": (
        pluginregistration.PluginInfo(
            type="DevicePlugin", name="rdma/ib_vf", endpoint="/s", supported_versions=["v1beta1"]
        ),
        b"\x0a\x0cDevicePlugin\x12\x0ardma/ib_vf\x1a\x02/s\x22\x07v1beta1",
    ),
    "registration status": (
        pluginregistration.RegistrationStatus(plugin_registered=True, error="no"),
        b"\x08\x01\x12\x02no",
    ),
    "device with topology": (
        deviceplugin.Device(
            ID="a", health="Healthy", topology=deviceplugin.TopologyInfo(nodes=[deviceplugin.NUMANode(ID=1)])
        ),
        b"\x0a\x01a\x12\x07Healthy\x1a\x04\x0a\x02\x08\x01",
    ),
    "allocation": (
        deviceplugin.ContainerAllocateResponse(
            envs={"K": "v"},
            devices=[deviceplugin.DeviceSpec(container_path="/c", host_path="/h", permissions="rw")],
            cdi_devices=[deviceplugin.CDIDevice(name="k=d")],
        ),
        b"\x0a\x06\x0a\x01K\x12\x01v\x1a\x0c\x0a\x02/c\x12\x02/h\x1a\x02rw\x2a\x05\x0a\x03k=d",
    ),
    "pod resources": (
        podresources.GetPodResourcesResponse(
            pod_resources=podresources.PodResources(
                name="p",
                namespace="n",
                containers=[
                    podresources.ContainerResources(
                        name="c",
                        devices=[podresources.ContainerDevices(resource_name="r", device_ids=["i"])],
                    )
                ],
            )
        ),
        b"\x0a\x13\x0a\x01p\x12\x01n\x1a\x0b\x0a\x01c\x12\x06\x0a\x01r\x12\x01i",
    ),
}


@pytest.mark.parametrize(("message", "wire"), WIRE.values(), ids=WIRE.keys())
def test_message_is_written_in_kubelets_wire_format(message: Message, wire: bytes) -> None:
    assert message.SerializeToString(deterministic=True) == wire


@pytest.mark.parametrize(("message", "wire"), WIRE.values(), ids=WIRE.keys())
def test_message_is_read_from_kubelets_wire_format(message: Message, wire: bytes) -> None:
    assert type(message).FromString(wire) == message


@pytest.mark.parametrize(
    ("enumeration", "values"),
    [
        ("PodSandboxState", {"SANDBOX_READY": 0, "SANDBOX_NOTREADY": 1}),
        ("NamespaceMode", {"POD": 0, "CONTAINER": 1, "NODE": 2, "TARGET": 3}),
    ],
)
def test_enumeration_has_the_runtimes_values(enumeration: str, values: dict[str, int]) -> None:
    found = cri.DESCRIPTOR.enum_types_by_name[enumeration].values
    assert {value.name: value.number for value in found} == values
