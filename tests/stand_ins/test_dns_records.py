"""A table of objects and the answers that CoreDNS gives for them (plugin/kubernetes/handler_test.go is its own table)."""

from typing import Any

import pytest

from tests.stand_ins.dns_records import Answer, ClusterRecords, Outcome

NXDOMAIN, NODATA = Answer(Outcome.NXDOMAIN), Answer(Outcome.FOUND)
FOREIGN = Answer(Outcome.NXDOMAIN, authoritative=False)


def found(*addresses: str) -> Answer:
    return Answer(Outcome.FOUND, addresses)


def service(name: str, *addresses: str, **spec: Any) -> dict[str, Any]:
    """Describe a Service as API server 1.20 and later write it."""
    cluster_ips = {"clusterIP": addresses[0], "clusterIPs": list(addresses)} if addresses else {}
    return {"metadata": {"namespace": "ml", "name": name}, "spec": {**cluster_ips, **spec}}


def endpoints(service_name: str, *members: dict[str, Any], suffix: str = "a", **others: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service_name}
    metadata = {"namespace": "ml", "name": f"{service_name}-{suffix}", "labels": labels}
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": list(members), **others}


def endpoint(*addresses: str, ready: bool | None = True, hostname: str | None = None) -> dict[str, Any]:
    named = {} if hostname is None else {"hostname": hostname}
    return {"addresses": list(addresses), "conditions": {} if ready is None else {"ready": ready}, **named}


PORT = {"name": "tfjob-port", "port": 2222, "protocol": "TCP"}
RECORDS = ClusterRecords(
    services=[
        service("api", "10.96.0.7", ports=[PORT]),
        service("dual", "10.96.0.8", "fd00::8", ports=[PORT]),
        service("net1", "None"),
        service("two-slices", "None"),
        service("v6", "None"),
        service("waiting", "None"),
        service("waiting-published", "None", publishNotReadyAddresses=True),
        service("empty", "None"),
        service("ports", "None", ports=[PORT]),
        service("elsewhere", type="ExternalName", externalName="example.com"),
    ],
    slices=[
        endpoints("api", endpoint("10.244.3.2"), ports=[PORT]),
        endpoints("net1", endpoint("10.56.0.1", hostname="mnist-ps-0"), endpoint("10.56.0.2"), ports=[]),
        endpoints("two-slices", endpoint("10.56.1.1"), endpoint("10.56.1.2"), suffix="a"),
        endpoints("two-slices", endpoint("10.56.1.2"), endpoint("10.56.1.3", ready=None), suffix="b", ports=None),
        endpoints(
            "v6",
            endpoint("fd00:56::1"),
            endpoint("fd00:56::", hostname="zero"),
            endpoint("fd00:57::"),
            addressType="IPv6",
        ),
        endpoints("waiting", endpoint("10.56.2.1", ready=False), endpoint("10.56.2.2", hostname="up")),
        endpoints("waiting-published", endpoint("10.56.2.9", ready=True, hostname="starting")),
        endpoints("empty", endpoint("10.56.3.1", ready=False, hostname="down")),
        endpoints("ports", endpoint("10.56.4.1"), ports=[PORT]),
        endpoints("ports", endpoint("host.example.com"), suffix="b", addressType="FQDN", ports=[PORT]),
        endpoints("no-service", endpoint("10.56.5.1")),
        {
            "metadata": {"namespace": "ml", "name": "no-label"},
            "addressType": "IPv4",
            "endpoints": [endpoint("10.56.6.1")],
        },
        {**endpoints("net1"), "endpoints": None},
    ],
    namespaces=["default", "ml"],
)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        # Services with an address
        ("api.ml.svc.cluster.local", 4, found("10.96.0.7")),
        ("api.ml.svc.cluster.local.", 4, found("10.96.0.7")),
        ("API.ml.SVC.cluster.LOCAL", 4, found("10.96.0.7")),
        ("api.ml.svc.cluster.local", 6, NODATA),
        ("api.ml.svc.cluster.local", 0, NODATA),
        ("dual.ml.svc.cluster.local", 4, found("10.96.0.8")),
        ("dual.ml.svc.cluster.local", 6, found("fd00::8")),
        ("10-244-3-2.api.ml.svc.cluster.local", 4, found("10.244.3.2")),
        ("10-244-3-9.api.ml.svc.cluster.local", 4, NXDOMAIN),
        # headless Services
        ("net1.ml.svc.cluster.local", 4, found("10.56.0.1", "10.56.0.2")),
        ("net1.ml.svc.cluster.local", 6, NODATA),
        ("mnist-ps-0.net1.ml.svc.cluster.local", 4, found("10.56.0.1")),
        ("Mnist-PS-0.net1.ml.svc.cluster.local", 4, found("10.56.0.1")),
        ("mnist-ps-0.net1.ml.svc.cluster.local", 6, NODATA),
        ("10-56-0-1.net1.ml.svc.cluster.local", 4, NXDOMAIN),  # an endpoint with a hostname has no other name
        ("10-56-0-2.net1.ml.svc.cluster.local", 4, found("10.56.0.2")),
        ("two-slices.ml.svc.cluster.local", 4, found("10.56.1.1", "10.56.1.2", "10.56.1.3")),
        ("v6.ml.svc.cluster.local", 6, found("fd00:56::1", "fd00:56::", "fd00:57::")),
        ("v6.ml.svc.cluster.local", 4, NODATA),
        ("fd00-56--1.v6.ml.svc.cluster.local", 6, found("fd00:56::1")),
        ("fd00-57--0.v6.ml.svc.cluster.local", 6, found("fd00:57::")),
        ("zero.v6.ml.svc.cluster.local", 6, found("fd00:56::")),
        # readiness: the condition of the slice, whatever the Service says
        ("waiting.ml.svc.cluster.local", 4, found("10.56.2.2")),
        ("waiting-published.ml.svc.cluster.local", 4, found("10.56.2.9")),
        ("empty.ml.svc.cluster.local", 4, NXDOMAIN),
        ("down.empty.ml.svc.cluster.local", 4, NXDOMAIN),
        # ports
        ("_tfjob-port._tcp.api.ml.svc.cluster.local", 4, found("10.96.0.7")),
        ("_tfjob-port._udp.api.ml.svc.cluster.local", 4, NXDOMAIN),
        ("_other._tcp.ports.ml.svc.cluster.local", 4, NXDOMAIN),
        ("_tfjob-port._tcp.ports.ml.svc.cluster.local", 4, found("10.56.4.1")),
        ("_tfjob-port._tcp.net1.ml.svc.cluster.local", 4, NXDOMAIN),
        ("ports.ml.svc.cluster.local", 4, found("10.56.4.1")),
        # what does not exist
        ("no-service.ml.svc.cluster.local", 4, NXDOMAIN),
        ("api.default.svc.cluster.local", 4, NXDOMAIN),
        ("api.nowhere.svc.cluster.local", 4, NXDOMAIN),
        ("a.b.c.api.ml.svc.cluster.local", 4, NXDOMAIN),
        ("api.ml.cluster.local", 4, NXDOMAIN),
        ("10-244-3-2.ml.pod.cluster.local", 4, NXDOMAIN),
        ("elsewhere.ml.svc.cluster.local", 4, NXDOMAIN),
        # what lies above the Services
        ("cluster.local", 4, NODATA),
        ("svc.cluster.local", 4, NODATA),
        ("ml.svc.cluster.local", 4, NODATA),
        ("nowhere.svc.cluster.local", 4, NXDOMAIN),
        # names of other zones, and what a search path makes of a complete name
        ("example.com", 4, FOREIGN),
        ("api.ml.svc", 4, FOREIGN),
        ("xcluster.local", 4, FOREIGN),
        ("api.ml.svc.cluster.local.ml.svc.cluster.local", 4, NXDOMAIN),
    ],
)
def test_name_is_answered_as_coredns_does(name: str, version: int, expected: Answer) -> None:
    assert RECORDS.answer(name, version) == expected


def test_service_of_an_api_server_before_1_20_has_its_one_address() -> None:
    old = {"metadata": {"namespace": "ml", "name": "old"}, "spec": {"clusterIP": "10.96.0.9", "ports": [PORT]}}

    assert ClusterRecords([old], [], ["ml"]).answer("old.ml.svc.cluster.local", 4) == found("10.96.0.9")


def test_no_name_exists_in_an_empty_cluster() -> None:
    assert ClusterRecords([], [], []).answer("kubernetes.default.svc.cluster.local", 4) == NXDOMAIN
