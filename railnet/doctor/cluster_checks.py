"""Checks what only the whole cluster can tell, for `railnet doctor --cluster`. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_network

from railnet.apiserver.oldest_kubernetes import too_old
from railnet.doctor import dra_checks
from railnet.doctor.cluster_facts import ClusterFacts, ClusterNode, RailnetPod
from railnet.doctor.finding_kinds import SEVERITIES, Finding
from railnet.fabric.rails_condition import TAINT, TYPE
from railnet.gangs.placement.node import tolerated
from railnet.objects.network_status import PublishedRail
from railnet.vf.address_slice import IpAddress, IpNetwork
from railnet.vf.guid import Guid

_MOST_NAMED = 4
_LONGEST = 200  # characters of a condition's message
_DAEMON = "railnet"  # `RailnetPod.program` of the DaemonSet's pods
# A DaemonSet's controller adds tolerations of these (kubernetes/pkg/controller/daemon/util, AddOrUpdateDaemonPodTolerations).
_OF_KUBERNETES = "node.kubernetes.io/"
# Labels of Node Feature Discovery for a network card (PCI class 02) of NVIDIA's (vendor 15b3), by its default and by other settings of
# `deviceLabelFields`. Source: kubernetes-sigs/node-feature-discovery, docs/usage/features.md, "PCI".
_CARD = re.compile(
    r"feature\.node\.kubernetes\.io/pci-(?:02[0-9a-f]{2}_)?15b3(?:_[0-9a-f_]+)?\.(?:present|sriov\.capable)"
)
# IPoIB's hardware address ends with the port's GUID (RFC 4391, 9.1.1).
_IPOIB = re.compile(r"(?:[0-9a-f]{2}:){12}((?:[0-9a-f]{2}:){7}[0-9a-f]{2})")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_ZERO_MAC = "00:00:00:00:00:00"


def findings(facts: ClusterFacts) -> tuple[Finding, ...]:
    """Return what all checks find, errors first."""
    all_findings = [finding for check in _CHECKS for finding in check(facts)]
    return tuple(sorted(all_findings, key=lambda finding: SEVERITIES.index(finding.kind.severity)))


def unread(facts: ClusterFacts) -> Iterator[Finding]:
    """Find what the API server did not show."""
    return (Finding("could-not-be-read", failure.where, failure.why) for failure in facts.unread)


def kubernetes(facts: ClusterFacts) -> Iterator[Finding]:
    """Find an API server that is older than Railnet needs."""
    if facts.kubernetes is not None and (seen := too_old(facts.kubernetes)):
        yield Finding("kubernetes-too-old", "the API server", seen)


def guids(facts: ClusterFacts) -> Iterator[Finding]:
    """Find pods that have ports with one GUID, or one MAC."""
    return _of_several(facts, "guid-of-two-pods", lambda rail: filter(None, (_port(rail.mac),)))


def _port(mac: str) -> str:
    """Return the GUID of a port, or its MAC on Ethernet, in words; empty if the hardware address is neither."""
    if (ipoib := _IPOIB.fullmatch(mac)) is not None:
        guid = Guid.parse(ipoib[1])
        return f"GUID {guid.quads}" if guid.usable else ""
    return f"MAC {mac}" if _MAC.fullmatch(mac) and mac != _ZERO_MAC else ""


def addresses(facts: ClusterFacts) -> Iterator[Finding]:
    """Find pods of one network that have one address."""
    named = "{} of network {}"
    return _of_several(
        facts,
        "address-of-two-pods",
        lambda rail: (named.format(address, rail.network.partition("/")[2]) for address in rail.addresses),
    )


def _of_several(facts: ClusterFacts, kind: str, values: Callable[[PublishedRail], Iterable[str]]) -> Iterator[Finding]:
    """Find values that rails of several pods have; one finding for the same pods, however many values they share."""
    owners: dict[str, dict[str, str]] = {}
    for pod in facts.pods or ():
        for rail in pod.rails:
            for value in values(rail):
                owners.setdefault(value, {})[pod.name] = f"{rail.interface} of {pod.name} on {pod.node}"
    shared: dict[tuple[str, ...], list[str]] = {}
    for value, rails in owners.items():
        if len(rails) > 1:
            shared.setdefault(tuple(rails), []).append(value)
    for pods, shared_values in shared.items():
        having = _some(list(owners[shared_values[0]].values()))
        yield Finding(kind, _some(pods), f"{_some(shared_values)}: {having}, by each pod's annotation network-status")


def ranges(facts: ClusterFacts) -> Iterator[Finding]:
    """Find networks with addresses that are also those of Services or of nodes' pods."""
    occupied = dict(facts.services or {})
    for cluster_node in facts.nodes or ():
        occupied.update(
            (range_, f"the podCIDRs of node {cluster_node.node.name}") for range_ in cluster_node.pods_ranges
        )
    lengths = {(range_.version, range_.prefixlen) for range_ in occupied}
    overlaps: dict[str, list[str]] = {}
    for pod in facts.pods or ():
        for rail in pod.rails:
            for address in rail.addresses:
                for range_ in _around(ip_address(address), lengths):
                    if range_ in occupied:
                        seen = f"{address} ({rail.interface} of {pod.name}) is in {range_}, {occupied[range_]}"
                        overlaps.setdefault(rail.network.partition("/")[2], []).append(seen)
    for network, seen_ones in overlaps.items():
        yield Finding("net1-in-cluster-range", f"network {network}", _some(seen_ones, "; "))


def _around(address: IpAddress, lengths: Iterable[tuple[int, int]]) -> Iterator[IpNetwork]:
    """Yield the ranges of these versions and prefix lengths that have an address: thousands of nodes have few lengths."""
    for version, length in lengths:
        if version == address.version:
            yield ip_network(f"{address}/{length}", strict=False)


def nodes(facts: ClusterFacts) -> Iterator[Finding]:
    """Find nodes that are not Ready."""
    for cluster_node in facts.nodes or ():
        if cluster_node.not_ready:
            yield Finding("node-not-ready", cluster_node.node.name, cluster_node.not_ready[:_LONGEST])


def daemon_set(facts: ClusterFacts) -> Iterator[Finding]:
    """Find a cluster without Railnet."""
    if facts.has_daemon_set is False:
        yield Finding(
            "no-daemonset", "daemonsets/railnet in namespace railnet", "the API server says that it does not exist"
        )


def daemons(facts: ClusterFacts) -> Iterator[Finding]:
    """Find nodes that should have a pod of the DaemonSet, and have none that is ready. A node that is not Ready is another finding."""
    if facts.daemon_set is None or facts.programs is None:
        return
    on = _daemons(facts)
    for cluster_node in facts.nodes or ():
        if cluster_node.not_ready or not _is_served(facts, cluster_node):
            continue
        if not any(not pod.not_ready for pod in on.get(cluster_node.node.name, ())):
            seen = "; ".join(f"pod {pod.name} is {pod.not_ready}" for pod in on.get(cluster_node.node.name, ()))
            yield Finding(
                "node-pod-not-ready",
                cluster_node.node.name,
                seen or "no pod of the DaemonSet railnet is on this node, which it should be",
            )


def _daemons(facts: ClusterFacts) -> dict[str, list[RailnetPod]]:
    pods_of_node: dict[str, list[RailnetPod]] = {}
    for pod in facts.programs or ():
        if pod.program == _DAEMON and pod.is_current:
            pods_of_node.setdefault(pod.node, []).append(pod)
    return pods_of_node


def _is_served(facts: ClusterFacts, cluster_node: ClusterNode) -> bool:
    """Return whether the DaemonSet should have a pod on a node."""
    if facts.daemon_set is None or not facts.daemon_set.may_be_on(cluster_node.node.name, cluster_node.node.labels):
        return False
    taints = (taint for taint in cluster_node.node.taints if not taint.key.startswith(_OF_KUBERNETES))
    return tolerated(taints, facts.daemon_set.tolerations)


def images(facts: ClusterFacts) -> Iterator[Finding]:
    """Find a program with pods of several images."""
    for program, pods in _programs(facts).items():
        counted = Counter(pod.image for pod in pods)
        if len(counted) > 1:
            seen = "; ".join(_image(image, pods) for image, _ in counted.most_common())
            yield Finding("update-unfinished", f"{program} in namespace railnet", seen)


def _image(image: str, pods: Sequence[RailnetPod]) -> str:
    having = [pod for pod in pods if pod.image == image]
    not_ready = sum(1 for pod in having if pod.not_ready)
    where = _some(sorted({pod.node or "no node yet" for pod in having}))
    return f"{image}: {len(having)} pod{'' if len(having) == 1 else 's'}{f', {not_ready} not ready' if not_ready else ''} ({where})"


def versions(facts: ClusterFacts) -> Iterator[Finding]:
    """Find programs of different versions. A program with pods of several versions is at another one soon."""
    told: dict[str, str] = {}
    for program, pods in _programs(facts).items():
        pod_versions = {pod.version for pod in pods}
        if len(pod_versions) == 1 and (version := pod_versions.pop()):
            told[program] = version
    if len(set(told.values())) > 1:
        seen = ", ".join(f"{program} {version}" for program, version in sorted(told.items()))
        yield Finding("programs-differ", "namespace railnet", seen)


def _programs(facts: ClusterFacts) -> dict[str, list[RailnetPod]]:
    pods_of_program: dict[str, list[RailnetPod]] = {}
    for pod in facts.programs or ():
        if pod.is_current:
            pods_of_program.setdefault(pod.program, []).append(pod)
    return pods_of_program


def cards(facts: ClusterFacts) -> Iterator[Finding]:
    """Find nodes with a card, and a daemon that is ready, that offer no rail."""
    ready = {node for node, pods in _daemons(facts).items() if any(not pod.not_ready for pod in pods)}
    devices = dra_checks.devices_of(facts.slices)
    for cluster_node in facts.nodes or ():
        label = next(
            (key for key, value in cluster_node.node.labels.items() if value == "true" and _CARD.fullmatch(key)), None
        )
        name = cluster_node.node.name
        if label is not None and not cluster_node.has_rails and not devices.of(name).now and name in ready:
            seen = f"label {label}; no resource of rails is allocatable, and no ResourceSlice has a healthy device"
            yield Finding("node-without-rails", name, seen)


def slices(facts: ClusterFacts) -> Iterator[Finding]:
    """Find slices that the scheduler does not take, and nodes that offer a resource twice."""
    yield from dra_checks.incomplete_pools(facts.slices)
    allocatable = {cluster_node.node.name: cluster_node.node.allocatable for cluster_node in facts.nodes or ()}
    yield from dra_checks.both_ways(allocatable, dra_checks.devices_of(facts.slices))


def conditions(facts: ClusterFacts) -> Iterator[Finding]:
    """Find nodes with a rail that is not ACTIVE, and taints that no such rail explains."""
    for cluster_node in facts.nodes or ():
        status, message = cluster_node.condition or ("", "")
        if status == "False":
            yield Finding("rail-not-active", cluster_node.node.name, f"{TYPE} is False: {message[:_LONGEST]}")
        elif cluster_node.is_tainted and status != "Unknown":
            seen = f"{TYPE} is {status}" if status else f"no condition {TYPE}"
            yield Finding("taint-remains", cluster_node.node.name, f"taint {TAINT}; {seen}")


def _some(named: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return between.join(named[:_MOST_NAMED]) + more


_CHECKS: tuple[Callable[[ClusterFacts], Iterable[Finding]], ...] = (
    kubernetes,
    nodes,
    daemon_set,
    daemons,
    guids,
    addresses,
    ranges,
    conditions,
    images,
    versions,
    cards,
    slices,
    unread,
)
