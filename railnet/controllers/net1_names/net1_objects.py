"""The Services and EndpointSlices of names on net1 as the API server has them: built from what should be, and read back.

Source: kubernetes/api, core/v1 Service, discovery/v1 EndpointSlice.
"""

from collections.abc import Mapping
from typing import Any

from railnet.apiserver.request import ApiObject, Collection, JsonObject
from railnet.controllers.net1_names.observed_job_objects import FoundObject
from railnet.controllers.net1_names.wanted_net1_records import EndpointSlice, Family, Net1Record, Service
from railnet.controllers.training_pod import Job
from railnet.jobs import railnet_labels
from railnet.jobs.name_truncation import shortened
from railnet.objects.owner_reference import LONGEST_TEXT, OwnerReference, references

_SLICE_VERSION = "discovery.k8s.io/v1"
_LABEL_LENGTH = 63
# Anybody who may write Services may write the annotation and the owners of one with our label: what no controller of ours writes is not kept.
_LONGEST_JOB = LONGEST_TEXT + 1  # the name of a pod's owner, as it is kept
_MOST_ENDPOINTS, _MOST_ADDRESSES = 101, 2  # one more of each than is written, so that a longer list is corrected
_SERVICE_NAME = "kubernetes.io/service-name"
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_OURS = "railnet.io"
# kube-proxy does not watch objects with this label: no node gets a job's names (kubernetes/pkg/proxy, noHeadlessEndpoints).
_HEADLESS = {"service.kubernetes.io/headless": ""}
# What a Service of names has, and what it has none of: with a selector, a port or an address of its own it would lead traffic to pods.
_SPEC = {"clusterIP": "None", "type": "ClusterIP", "publishNotReadyAddresses": True}
_NONE_OF_SPEC = ("selector", "ports", "externalIPs")


def services() -> Collection:
    """Return all Services that Railnet made."""
    return Collection("v1", "services", labels=railnet_labels.NAMES)


def slices() -> Collection:
    """Return all EndpointSlices that Railnet made."""
    return Collection(_SLICE_VERSION, "endpointslices", labels=railnet_labels.NAMES)


def service_address(service: Service) -> ApiObject:
    """Return the address of a Service."""
    return ApiObject("v1", "services", service.name, service.job.namespace)


def slice_address(endpoint_slice: EndpointSlice) -> ApiObject:
    """Return the address of an EndpointSlice."""
    return ApiObject(_SLICE_VERSION, "endpointslices", endpoint_slice.name, endpoint_slice.job.namespace)


def service_body(service: Service) -> JsonObject:
    """Return a Service as it is created; a merge patch of the same content corrects it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(service.name, service, _service_labels(service)),
        "spec": {**_SPEC, **dict.fromkeys(_NONE_OF_SPEC)},
    }


def slice_body(endpoint_slice: EndpointSlice) -> JsonObject:
    """Return an EndpointSlice as it is created; a merge patch of the same content corrects it."""
    return {
        "apiVersion": _SLICE_VERSION,
        "kind": "EndpointSlice",
        "metadata": _metadata(endpoint_slice.name, endpoint_slice.service, _slice_labels(endpoint_slice)),
        "addressType": endpoint_slice.family.value,
        "endpoints": [_endpoint(record, endpoint_slice.job.namespace) for record in endpoint_slice.records],
        "ports": [],
    }


def service(json_object: JsonObject) -> FoundObject[Service]:
    """Read a Service.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: Railnet made no such Service.
    """
    metadata, spec = json_object["metadata"], json_object["spec"]
    if spec.get("clusterIP") != "None":
        raise ValueError("it is not headless")
    what = Service(_job(metadata), metadata["name"], metadata["labels"][railnet_labels.NAMES], _owner(metadata))
    intact = all(spec.get(key) == value for key, value in _SPEC.items()) and not any(map(spec.get, _NONE_OF_SPEC))
    return FoundObject(
        what, metadata["uid"], int(metadata["resourceVersion"]), intact and _has(metadata, _service_labels(what))
    )


def endpoint_slice(json_object: JsonObject) -> FoundObject[EndpointSlice]:
    """Read an EndpointSlice.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: Railnet made no such slice.
    """
    metadata = json_object["metadata"]
    labels = metadata["labels"]
    of = Service(_job(metadata), labels[_SERVICE_NAME], labels[railnet_labels.NAMES], _owner(metadata))
    endpoints = (json_object.get("endpoints") or ())[:_MOST_ENDPOINTS]
    what = EndpointSlice(metadata["name"], of, Family(json_object["addressType"]), tuple(map(_record, endpoints)))
    ready = all((endpoint.get("conditions") or {}).get("ready") is True for endpoint in endpoints)
    intact = ready and not json_object.get("ports") and _has(metadata, _slice_labels(what))
    return FoundObject(what, metadata["uid"], int(metadata["resourceVersion"]), intact)


def _metadata(name: str, service: Service, labels: Mapping[str, str]) -> JsonObject:
    owners = [] if service.owner is None else [service.owner.reference()]
    return {
        "name": name,
        "namespace": service.job.namespace,
        "labels": dict(labels),
        "annotations": {railnet_labels.JOB: service.job.name},  # a label's value may be too short for it
        "ownerReferences": owners,
    }


def _service_labels(service: Service) -> dict[str, str]:
    job = shortened(service.job.name, _LABEL_LENGTH)
    return {railnet_labels.NAMES: service.scope, railnet_labels.JOB: job, **_HEADLESS}


def _slice_labels(endpoint_slice: EndpointSlice) -> dict[str, str]:
    return {**_service_labels(endpoint_slice.service), _SERVICE_NAME: endpoint_slice.service.name, _MANAGED_BY: _OURS}


def _endpoint(record: Net1Record, namespace: str) -> JsonObject:
    # Also while a pod is not ready, or leaves: peers look for it when it starts, and publishNotReadyAddresses is for Kubernetes' own
    # controller. What does not change when a pod becomes ready costs no write then.
    endpoint: JsonObject = {"addresses": [record.address], "conditions": {"ready": True}}
    if record.hostname:
        endpoint["hostname"] = record.hostname
    if record.node:
        endpoint["nodeName"] = record.node
    endpoint["targetRef"] = {"kind": "Pod", "namespace": namespace, "name": record.pod, "uid": record.uid}
    return endpoint


def _record(endpoint: JsonObject) -> Net1Record:
    target = endpoint.get("targetRef") or {}
    # Of two, which Railnet does not write, no record is made: they are corrected.
    address = ",".join(endpoint["addresses"][:_MOST_ADDRESSES])
    hostname, node = endpoint.get("hostname") or "", endpoint.get("nodeName") or ""
    return Net1Record(hostname, address, target.get("name") or "", target.get("uid") or "", node)


def _job(metadata: Mapping[str, Any]) -> Job:
    name = metadata["annotations"][railnet_labels.JOB]
    if len(name) > _LONGEST_JOB:
        raise ValueError(f"{railnet_labels.JOB} has {len(name)} characters, which no job's name has")
    return Job(metadata["namespace"], name)


def _owner(metadata: Mapping[str, Any]) -> OwnerReference | None:
    owners = references(metadata)
    return OwnerReference.read(owners[0]) if owners else None


def _has(metadata: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    object_labels = metadata["labels"]
    one_owner = len(references(metadata)) <= 1
    return one_owner and all(object_labels.get(key) == value for key, value in labels.items())
