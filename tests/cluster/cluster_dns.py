"""The cluster's DNS: the Service `kube-dns`, and behind it the stand-in for CoreDNS, which runs on the node."""

import sys
from typing import Any

from dnslib import DNSRecord

from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import DNS_ADDRESS, NODE_ADDRESS
from tests.cluster.kubectl import Kubectl
from tests.cluster.process import Program

_PORT = 53
_START_SECONDS = 180.0
_QUERY_SECONDS = 30.0


class ClusterDns:
    """One process; pods reach it by the Service's address, which kube-proxy forwards."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        command = [sys.executable, "-m", "tests.stand_ins.dns_server", ADMIN, NODE_ADDRESS, str(_PORT)]
        self.program = Program(command, name="dns-stand-in")

    def start(self) -> None:
        """Start it; returns at once. The API server must answer."""
        self.program.start()
        self._kubectl.apply(*_objects())

    def wait(self) -> None:
        """Wait until it answers what the API server has."""
        self.program.wait(self._answers, _START_SECONDS)

    def addresses(self, name: str) -> set[str]:
        """Give the IPv4 addresses of a name below `cluster.local`, as a pod gets them.

        Raises:
            OSError: there is no answer in time.
        """
        question = DNSRecord.question(f"{name}.cluster.local")
        return {
            str(one.rdata) for one in DNSRecord.parse(question.send(NODE_ADDRESS, _PORT, timeout=_QUERY_SECONDS)).rr
        }

    def stop(self) -> None:
        self.program.stop()

    def _answers(self) -> bool:
        try:
            return bool(self.addresses("kubernetes.default.svc"))
        except OSError:
            return False


def _objects() -> list[dict[str, Any]]:
    """Describe the Service, and its Endpoints without a pod, of which Kubernetes makes an EndpointSlice."""
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    ports = [{"name": f"dns-{protocol}".lower(), "port": _PORT, "protocol": protocol} for protocol in ("UDP", "TCP")]
    addresses = {"addresses": [{"ip": NODE_ADDRESS}], "ports": ports}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
        },
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [addresses]},
    ]
