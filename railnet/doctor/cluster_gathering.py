"""Asks the API server for what `railnet doctor --cluster` looks at: a few lists, page by page. It reads, and changes nothing."""

from collections.abc import Collection as Names
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus

from railnet.apiserver.client import ApiServer, RequestFailed
from railnet.apiserver.oldest_kubernetes import said
from railnet.apiserver.request import ApiObject, Collection, JsonObject, ServerVersion
from railnet.doctor.apiserver_reads import Asking
from railnet.doctor.cluster_facts import ClusterFacts
from railnet.doctor.cluster_parsing import PROGRAM, cluster_node, pod_rails, railnet_pod, ranges
from railnet.doctor.pod_gathering import SLICES
from railnet.gangs.placement.pod_shape import Shape, shape
from railnet.gangs.slice_devices import pool_slice
from railnet.vf.address_slice import IpNetwork

_OURS = "railnet"  # the namespace of daemonset/, and the name of the DaemonSet
_NODES = Collection("v1", "nodes")
_RUNNING = Collection("v1", "pods", None, "", "status.phase=Running")
_PROGRAMS = Collection("v1", "pods", _OURS, f"{PROGRAM} in (railnet,railnet-admission,railnet-controllers)")
_DAEMON_SET = ApiObject("apps/v1", "daemonsets", _OURS, _OURS)
_SERVICE_RANGES = Collection("networking.k8s.io/v1", "servicecidrs")  # from Kubernetes 1.33 on
_KUBERNETES = ApiObject("v1", "services", "kubernetes", "default")
_NO_ANSWER = 0  # `RequestFailed.status`


def gather(api: ApiServer, rails: Names[str]) -> ClusterFacts:
    """Return the facts about the cluster. Facts that the user may not read are left out, and named.

    Raises:
        RequestFailed: the API server does not answer, or refuses the user.
    """
    asking = Asking(api, fatal=(_NO_ANSWER, HTTPStatus.UNAUTHORIZED))
    nodes = asking.each(_NODES, partial(cluster_node, rails=rails))
    pods = asking.each(_RUNNING, pod_rails)
    programs = asking.each(_PROGRAMS, railnet_pod)
    if nodes is None and pods is None and programs is None:
        raise RequestFailed(asking.unread[0].why)
    document = asking.one(_DAEMON_SET)
    version = asking.one(ServerVersion())
    return ClusterFacts(
        kubernetes=None if version is None else said(version),
        nodes=nodes,
        pods=pods,
        programs=None if asking.has_failed(_PROGRAMS) else programs,
        has_daemon_set=None if asking.has_failed(_DAEMON_SET) else document is not None,
        daemon_set=None if document is None else asking.read(_DAEMON_SET, _template, document),
        services=dict(_services(asking)),
        slices=asking.each(SLICES, pool_slice, may_be_absent=True) or (),
        unread=asking.unread,
    )


def _template(daemon_set: JsonObject) -> Shape:
    return shape(daemon_set["spec"]["template"]["spec"])


def _services(asking: Asking) -> Iterator[tuple[IpNetwork, str]]:
    """Yield the ranges of Services where the API server tells them, and in any case the address of one Service."""
    for name, cidrs in asking.each(_SERVICE_RANGES, _service_range, may_be_absent=True) or ():
        yield from ((cidr, f"the range of ServiceCIDR {name}") for cidr in cidrs)
    service = asking.one(_KUBERNETES)
    addresses = None if service is None else asking.read(_KUBERNETES, _cluster_ips, service)
    yield from ((address, "the address of Service default/kubernetes") for address in addresses or ())


def _service_range(document: JsonObject) -> tuple[str, tuple[IpNetwork, ...]]:
    return str(document["metadata"]["name"]), ranges(document["spec"]["cidrs"])


def _cluster_ips(service: JsonObject) -> tuple[IpNetwork, ...]:
    spec = service["spec"]
    return ranges(spec["clusterIPs"])
