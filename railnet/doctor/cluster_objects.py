"""Objects of the API server, reduced to what `railnet doctor --cluster` looks at. Pure.

Each function raises KeyError, TypeError, AttributeError or ValueError for an object of another form than the documented one. An
annotation of a pod is different: each user that may change the pod may have written it, so what it does not tell in our form is left out.
"""

import re
from collections.abc import Collection, Iterator
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from railnet.apiserver import network_status
from railnet.apiserver.request import JsonObject
from railnet.doctor.cluster_facts import ClusterNode, PodRails, PublishedRail, RailnetPod
from railnet.fabric.rails_condition import TAINT, TYPE
from railnet.jobs.placement.node import node
from railnet.jobs.pod_progress import progress
from railnet.objects.conditions import condition, is_ready
from railnet.objects.metadata import is_deleted
from railnet.objects.pod_phase import ENDED, RUNNING, phase
from railnet.objects.resources import allocatable
from railnet.objects.taints import has_taint
from railnet.vf.address_slice import IpAddress, IpNetwork
from railnet.vf.guid import Guid

PROGRAM = "app.kubernetes.io/name"
_VERSION = "app.kubernetes.io/version"
_TAG = re.compile(r":v?([0-9]+\.[0-9]+\.[0-9]+[-.\w]*)(?:@.*)?")
_RDMA = "rdma/"  # begins the names of the resources of our pools, if the configuration names none of its own
_MOST_RAILS = 64  # of one pod; a hostile annotation has room for thousands
_NETWORK = re.compile(r"railnet/[a-z0-9][-.a-z0-9]{0,62}")
_INTERFACE = re.compile(r"net[1-9][0-9]{0,2}")
# IPoIB's hardware address ends with the port's GUID (RFC 4391, 9.1.1).
_IPOIB = re.compile(r"(?:[0-9a-f]{2}:){12}((?:[0-9a-f]{2}:){7}[0-9a-f]{2})")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_ZERO_MAC = "00:00:00:00:00:00"


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
    )


def ranges(written: Collection[str]) -> tuple[IpNetwork, ...]:
    """Read ranges of addresses."""
    return tuple(map(ip_network, written))


def pod_rails(document: JsonObject) -> PodRails | None:
    """Read the rails of a pod; None if it does not run, is being deleted, or names no rail."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    if is_deleted(metadata) or phase(document) != RUNNING:
        return None
    published = network_status.rails(document)[:_MOST_RAILS]
    rails = tuple(rail for network in published if (rail := _rail(network)) is not None)
    return PodRails(f"{metadata['namespace']}/{metadata['name']}", str(spec.get("nodeName")), rails) if rails else None


def _rail(element: dict[str, Any]) -> PublishedRail | None:
    network, interface, mac, ips = (element.get(key) for key in ("name", "interface", "mac", "ips"))
    if not (isinstance(network, str) and _NETWORK.fullmatch(network)):
        return None
    if not (isinstance(interface, str) and _INTERFACE.fullmatch(interface)):
        return None
    port = _port(mac) if isinstance(mac, str) else ""
    return PublishedRail(network, interface, port, tuple(_addresses(ips)) if isinstance(ips, list) else ())


def _port(mac: str) -> str:
    if (ipoib := _IPOIB.fullmatch(mac)) is not None:
        guid = Guid.parse(ipoib[1])
        return f"GUID {guid.quads}" if guid.usable else ""
    return f"MAC {mac}" if _MAC.fullmatch(mac) and mac != _ZERO_MAC else ""


def _addresses(ips: list[Any]) -> Iterator[IpAddress]:
    for text in ips:
        if not isinstance(text, str):
            continue
        try:
            ip = ip_address(text)
        except ValueError:
            continue
        scoped = isinstance(ip, IPv6Address) and ip.scope_id is not None
        if not (scoped or ip.is_link_local or ip.is_loopback or ip.is_unspecified or ip.is_multicast):
            yield ip


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
