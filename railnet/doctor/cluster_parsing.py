"""Objects of the API server, reduced to what `railnet doctor --cluster` looks at. Pure.

Each function raises KeyError, TypeError, AttributeError or ValueError for an object of another form than the documented one. An
annotation of a pod is different: each user that may change the pod may have written it (`railnet.objects.network_status`).
"""

import re
from collections.abc import Collection
from ipaddress import ip_network

from railnet.apiserver.request import JsonObject
from railnet.doctor.cluster_facts import ClusterNode, PodRails, RailnetPod
from railnet.fabric.rails_condition import TAINT, TYPE
from railnet.gangs.placement.node import node
from railnet.jobs.pod_progress import progress
from railnet.objects.conditions import condition, is_ready
from railnet.objects.metadata_times import is_deleted
from railnet.objects.network_status import rails_of_pod
from railnet.objects.node_taints import has_taint
from railnet.objects.pod_phase import ENDED, RUNNING, phase
from railnet.objects.resource_amounts import allocatable
from railnet.vf.address_slice import IpNetwork

PROGRAM = "app.kubernetes.io/name"
_VERSION = "app.kubernetes.io/version"
_TAG = re.compile(r":v?([0-9]+\.[0-9]+\.[0-9]+[-.\w]*)(?:@.*)?")
_RDMA = "rdma/"  # begins the names of the resources of our pools, if the configuration names none of its own


def cluster_node(document: JsonObject, rails: Collection[str]) -> ClusterNode:
    """Read a node; `rails` are resources of rails beside those that begin with `rdma/`."""
    spec = document.get("spec") or {}
    rails_condition = condition(document, TYPE)
    return ClusterNode(
        node=node(document),
        has_rails=any(
            amount > 0 and (resource in rails or resource.startswith(_RDMA))
            for resource, amount in allocatable(document).items()
        ),
        condition=None
        if rails_condition is None
        else (rails_condition.status, " ".join((rails_condition.message or rails_condition.reason).split())),
        is_tainted=has_taint(document, TAINT),
        pods_ranges=ranges(spec.get("podCIDRs") or ()),
        not_ready=_not_ready(document),
    )


def _not_ready(document: JsonObject) -> str:
    ready = condition(document, "Ready")
    if ready is None:
        return "it has no condition Ready: no kubelet has reported for it"
    return "" if ready.is_true else f"Ready is {ready.status}: {' '.join((ready.message or ready.reason).split())}"


def ranges(written: Collection[str]) -> tuple[IpNetwork, ...]:
    """Read ranges of addresses."""
    return tuple(map(ip_network, written))


def pod_rails(document: JsonObject) -> PodRails | None:
    """Read the rails of a pod; None if it does not run, is being deleted, or names no rail."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    if is_deleted(metadata) or phase(document) != RUNNING:
        return None
    rails = rails_of_pod(document)
    return PodRails(f"{metadata['namespace']}/{metadata['name']}", str(spec.get("nodeName")), rails) if rails else None


def railnet_pod(document: JsonObject) -> RailnetPod:
    """Read a pod of one of Railnet's programs."""
    metadata, spec = document["metadata"], document["spec"]
    program = metadata["labels"][PROGRAM]
    containers = spec["containers"]
    # Another program may have added a container, such as a service mesh.
    ours = next(
        (container for container in containers if container["name"] == program.removeprefix("railnet-")), containers[0]
    )
    image = str(ours["image"])
    tag = _TAG.search(image.rpartition("/")[2])
    stage, why = progress(document)
    return RailnetPod(
        name=f"{metadata['namespace']}/{metadata['name']}",
        program=program,
        node=str(spec.get("nodeName") or ""),
        image=image,
        version=str(metadata["labels"].get(_VERSION) or (tag[1] if tag else "")),
        is_current=not is_deleted(metadata) and phase(document) not in ENDED,
        not_ready="" if is_ready(document) else f"{stage} and not ready{': ' if why else ''}{why}",
    )
