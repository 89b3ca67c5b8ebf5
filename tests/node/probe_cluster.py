"""A cluster for `railnet validate` without kubelets: the API server is in memory, and each pod is a network namespace with the probe.

A rail is a bridge in a namespace of its own. A pod of a node has a veth for each rail, named net1, net2, … as Railnet names them.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from railnet.apiserver.client import Answer, RequestFailed
from railnet.apiserver.request import ApiObject, Request
from railnet.objects.network_status import ANNOTATION
from railnet.validate.probe import rail_probe
from simnode.linux import netns
from tests.railnet.train.memory_api_server import MemoryApiServer

_SWITCHES = "validate-rails"
_COMMAND_SECONDS = 120
# As the container of a pod is: another user, and no capability.
_UNPRIVILEGED = (
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--bounding-set=-all",
    "--inh-caps=-all",
)
MTU = 4092
_MBITS = 400  # of a cable: far below what a processor can do, so that what else it does makes no rail slow
# The other user may not be allowed to read the virtual environment and the checkout.
_PROBE = (f"{sys.base_prefix}/bin/python3", "-I", "-c", Path(rail_probe.__file__).read_text())


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def probe(pod: str, *arguments: str) -> list[str]:
    """Return the command that runs the probe in a network namespace, as its pod does: as a user without rights."""
    return ["nsenter", f"--net=/run/netns/{pod}", *_UNPRIVILEGED, *_PROBE, *arguments]


class ProbeCluster:
    """The nodes and their rails; a context manager. It runs commands in pods as `railnet.apiserver.pod_exec.PodExec` does.

    Attributes:
        server: the API server; pods start when they are created.
        pods: the pods that run, by node.
    """

    def __init__(self, nodes: Sequence[str], rails: int) -> None:
        self.server, self.pods = MemoryApiServer(), dict[str, str]()
        self._nodes, self._rails, self._made = nodes, rails, ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            self._namespace(_SWITCHES, made)
            for rail in range(self._rails):
                ip("-n", _SWITCHES, "link", "add", f"rail{rail}", "mtu", str(MTU), "type", "bridge")
                ip("-n", _SWITCHES, "link", "set", f"rail{rail}", "up")
            self.server.add("namespaces", {"metadata": {"name": "default"}})
            for name in self._nodes:
                status = {
                    "allocatable": {"rdma/ib_vf": "8"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
                labels = {"railnet.io/rails": str(self._rails)}
                self.server.add("nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
            self.server.after = self._start
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    def cut(self, node: str, rail: int) -> None:
        """Take the cable of a node's rail out of its switch."""
        ip("-n", _SWITCHES, "link", "set", _cable(self.pods[node], rail), "nomaster")

    def shrink(self, node: str, rail: int, mtu: int) -> None:
        """Have the switch's port of a node's rail take smaller packets; the netdev in the pod does not know."""
        ip("-n", _SWITCHES, "link", "set", _cable(self.pods[node], rail), "mtu", str(mtu))

    def join(self, rail: int, other: int) -> None:
        """Cable the switches of two rails to each other."""
        one, two = f"to{other}", f"to{rail}"
        ip("-n", _SWITCHES, "link", "add", one, "type", "veth", "peer", "name", two)
        for port, bridge in ((one, rail), (two, other)):
            ip("-n", _SWITCHES, "link", "set", port, "mtu", str(MTU), "master", f"rail{bridge}", "up")

    def slow(self, node: str, rail: int) -> None:
        """Give the cable of a node's rail a tenth of its rate."""
        _set_rate(self.pods[node], rail, _MBITS // 10)

    def run(self, pod: ApiObject, container: str, command: Sequence[str], seconds: float) -> str:
        """Run the probe in a pod."""
        done = subprocess.run(
            probe(pod.name, *command[2:]), capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS
        )
        if done.returncode:
            raise RequestFailed(f"status {done.returncode}: {done.stderr}")
        return done.stdout

    def _start(self, request: Request) -> Answer | None:
        if request.method == "POST" and request.about.resource == "pods":
            assert isinstance(request.body, dict)
            terms = request.body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            (node,) = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"]
            pod = request.body["metadata"]["name"]
            networks = [self._attach(pod, self._nodes.index(node), rail) for rail in range(self._rails)]
            server = subprocess.Popen(probe(pod))
            self._made.callback(server.wait)
            self._made.callback(server.kill)
            annotations = {ANNOTATION: json.dumps([{"name": "cbr0", "interface": "eth0", "ips": []}, *networks])}
            running = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
            metadata = {**request.body["metadata"], "annotations": annotations}
            self.server.add("pods", {**request.body, "metadata": metadata, "status": running})
            self.pods[node] = pod
        return None

    def _attach(self, pod: str, number: int, rail: int) -> dict[str, Any]:
        if not rail:
            self._namespace(pod, self._made)
        netdev, address, port = f"net{rail + 1}", f"10.56.{rail}.{number + 1}", _cable(pod, rail)
        peer = ("type", "veth", "peer", "name", netdev, "netns", pod, "mtu", str(MTU))
        ip("-n", _SWITCHES, "link", "add", port, "mtu", str(MTU), *peer)
        ip("-n", _SWITCHES, "link", "set", port, "master", f"rail{rail}", "up")
        ip("-n", pod, "address", "add", f"{address}/24", "dev", netdev)
        ip("-n", pod, "link", "set", netdev, "up")
        _keep_apart(pod, netdev)
        _set_rate(pod, rail, _MBITS)
        return {"name": "railnet/default", "interface": netdev, "ips": [address], "mtu": MTU, "rail": rail}

    def _namespace(self, name: str, made: ExitStack) -> None:
        path = Path("/run/netns", name)
        netns.create(path)
        made.callback(netns.remove, path)


def _keep_apart(pod: str, netdev: str) -> None:
    """Have a netdev answer ARP for its own addresses alone, as Railnet does in a pod with several rails."""
    settings = [f"net.ipv4.conf.{netdev}.{name}" for name in ("arp_ignore=1", "arp_announce=2", "rp_filter=2")]
    subprocess.run(["ip", "netns", "exec", pod, "sysctl", "-q", "-w", *settings], check=True, capture_output=True)


def _set_rate(pod: str, rail: int, mbits: int) -> None:
    """Limit what goes over a cable in each direction, in Mbit/s."""
    for namespace, netdev in ((_SWITCHES, _cable(pod, rail)), (pod, f"net{rail + 1}")):
        words = f"tc -n {namespace} qdisc replace dev {netdev} root tbf rate {mbits}mbit burst 128kb latency 50ms"
        subprocess.run(words.split(), check=True, capture_output=True)


def _cable(pod: str, rail: int) -> str:
    """Return the name of the switch's port that a pod's rail hangs on."""
    return f"pod{pod.rpartition('-')[2]}r{rail}"
