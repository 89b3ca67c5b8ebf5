"""The scenario of the demo on its two nodes, and its findings; `program` starts it.

A function whose first argument is `node` runs in the process of that node, and its result is sent back.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, ip_interface
from pathlib import Path
from typing import Any

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Attachment, decode
from simnode.cluster import Cluster, Machine
from simnode.hardware.pf_properties import SimulatedPf
from simnode.judge.machine_snapshot import Snapshot, difference
from simnode.judge.node_state import NODE_FOLDERS
from simnode.node import Node, Pod
from simnode.ping import ANSWER_SECONDS, SILENT_SECONDS
from simnode.remote_node import RemoteNode

_JOURNAL = Path("/run/railnet/journal")
_KINDS = (("plain", 0), ("train", 1), ("wide", 2))  # kind of pod, and its VFs; each node has a pod of each kind
_QUIET_ATTEMPTS = 5  # IPv6 neighbour discovery may send on eth0 and on a rail at any moment
_PING_BYTES = 2 * 84  # request and reply: IPv4 header, ICMP header, and ping's 56 bytes


def _machine(number: int, name: str, guids: tuple[int, int]) -> Machine:
    first, second = map(Guid, guids)
    rails = (SimulatedPf(guid=first), SimulatedPf(PciAddress(0, 0x0C, 0, 0), second, netdev="ibs6"))
    return Machine(name, IPv4Interface(f"172.18.0.{number}/24"), IPv4Interface(f"10.244.{number}.1/24"), rails)


MACHINES = (
    _machine(3, "node-a", (0xB8599F0300F98F86, 0xB8599F0300F98FA2)),
    _machine(4, "node-b", (0xB8599F0300FC21D6, 0xB8599F0300FC21F2)),
)


@dataclass(slots=True)
class Findings:
    """The findings of the scenario, in the form of `scripts/demo --json`."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    pings: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    fabric_bytes: int = 0
    left_over: int = 0
    left_over_items: list[str] = field(default_factory=list)

    def check(self, what: str, ok: bool) -> None:
        """Record a check and its result."""
        self.checks.append({"what": what, "ok": ok})

    @property
    def held(self) -> bool:
        """Whether all checks and pings passed and nothing is left over."""
        return all(entry["ok"] for entry in (*self.pings, *self.checks)) and not self.left_over_items


@dataclass(frozen=True, slots=True)
class Running:
    """A running pod, the node on which it runs, and its rails."""

    node: RemoteNode[Node]
    pod: Pod
    rails: tuple[Attachment, ...]

    def address(self, ifname: str) -> str:
        """Return the pod's address on an interface."""
        if ifname == "eth0":
            return str(ip_interface(json.loads(self.pod.result)["ips"][0]["address"]).ip)
        return str(self.rail(ifname).addresses[0].ip)

    def rail(self, ifname: str) -> Attachment:
        """Return the rail with an interface name."""
        return next(one for one in self.rails if one.ifname == ifname)

    def reaches(self, target: "Running", ifname: str, seconds: int = ANSWER_SECONDS) -> bool:
        """Return whether another pod answers a ping through the same network in time."""
        return self.node.call(Node.ping, self.pod, target.address(ifname), ifname, seconds)

    def described(self) -> dict[str, Any]:
        """Return the pod in the form of `scripts/demo --json`."""
        rails = [
            {
                "ifname": one.ifname,
                "address": ", ".join(map(str, one.addresses)),
                "vf": str(one.vf),
                "guid": str(one.guid),
                "rail": one.rail,
            }
            for one in self.rails
        ]
        name, add_ms = self.pod.name, round(self.pod.add_ms, 1)
        return {"name": name, "node": self.node.name, "eth0": self.address("eth0"), "rails": rails, "add_ms": add_ms}


def play(plugins: Path) -> Findings:
    """Start the nodes, run pods on them, ping, and remove everything; only inside `simnode exec`."""
    findings = Findings()
    with _progress("starting two nodes"), Cluster(plugins, MACHINES) as cluster:
        with _progress("installing Railnet, starting its daemon, making 16 VFs on each"):
            cluster.everywhere(_prepare)
        before = cluster.everywhere(_look)
        with _progress("running 6 pods"):
            pods = _run_pods(cluster)
        findings.pods = [running.described() for running in pods.values()]
        with _progress("pinging over every network"):
            _ping_eth0(pods, findings)
            _ping_rails(cluster, pods, findings)
            _stop_rails(cluster, pods["wide-0"], pods["wide-1"], findings)
        with _progress("taking the pods down, looking for what is left over"):
            for running in pods.values():
                running.node.call(Node.remove_pod, running.pod)
            for node, old, new in zip(cluster.nodes, before, cluster.everywhere(_look), strict=True):
                findings.left_over_items += [f"{node.name}: {item}" for item in difference(old, new)]
    return findings


def snapshot(folders: Iterable[str], *options: str) -> Snapshot:
    """Return a snapshot of the machine, taken by a process that shares nothing with this process."""
    roots = [argument for folder in folders for argument in ("--root", folder)]
    command = [sys.executable, "-m", "simnode.judge.machine_snapshot", *options, *roots]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    taken: Snapshot = json.loads(done.stdout)
    return taken


def _prepare(node: Node) -> None:
    """Run a pod with flannel only, so that flannel's bridge exists; then install Railnet and start its daemon."""
    node.remove_pod(node.run_pod("before-railnet"))
    node.install()
    node.start_daemon()


def _look(node: Node) -> Snapshot:
    node.hca.settle()
    with node.kubelet.still():
        return snapshot(NODE_FOLDERS)


def _run_pods(cluster: Cluster) -> dict[str, Running]:
    """Run a pod of each kind on each node, one after the other; return them by name."""
    pods = {}
    for number, node in enumerate(cluster.nodes):
        for kind, vfs in _KINDS:
            pod, rails = node.call(_run_pod, f"{kind}-{number}", vfs)
            pods[pod.name] = Running(node, pod, rails)
    return pods


def _run_pod(node: Node, name: str, vfs: int) -> tuple[Pod, tuple[Attachment, ...]]:
    """Run a pod; return it with its rails, which are in Railnet's record. A pod without a rail has no record."""
    pod = node.run_pod(name, vfs)
    record = _JOURNAL / f"{pod.container_id}@eth0.json"
    return pod, decode(record.read_bytes()).attachments if record.exists() else ()


def _ping_eth0(pods: dict[str, Running], findings: Findings) -> None:
    for source, target in (("plain-0", "train-0"), ("plain-0", "plain-1"), ("train-0", "wide-1"), ("wide-1", "wide-0")):
        ok = pods[source].reaches(pods[target], "eth0")
        findings.pings.append({"from": source, "to": target, "network": "eth0", "ok": ok})


def _ping_rails(cluster: Cluster, pods: dict[str, Running], findings: Findings) -> None:
    """Ping over each rail from node to node, and check which fabric carried the packets."""
    own_rail, flat = True, True
    for kind, ifname in (("train", "net1"), ("wide", "net1"), ("wide", "net2")):
        source, target = pods[f"{kind}-0"], pods[f"{kind}-1"]
        ok, rail_bytes, quiet = _quiet_ping(cluster, source, target, ifname)
        own_rail &= rail_bytes == _on_one_rail(cluster, source.rail(ifname))
        flat &= quiet
        findings.fabric_bytes += sum(rail_bytes)
        entry = {"from": source.pod.name, "to": target.pod.name, "network": ifname, "ok": ok, "rail_bytes": rail_bytes}
        findings.pings.append(entry)
    findings.check("each ping's bytes were on its own rail, and none on the other", own_rail)
    findings.check("eth0's counters stayed flat meanwhile", flat)


def _quiet_ping(cluster: Cluster, source: Running, target: Running, ifname: str) -> tuple[bool, list[int], bool]:
    """Ping; return whether the target answered, the bytes on each rail meanwhile, and whether eth0 was silent.

    Ping again where another packet was on a rail or on eth0 meanwhile.
    """
    for attempt in range(_QUIET_ATTEMPTS):
        rails, eth0 = [fabric.counters.bytes for fabric in cluster.fabrics], _eth0_counters(source, target)
        ok = source.reaches(target, ifname)
        quiet = _eth0_counters(source, target) == eth0
        rail_bytes = [fabric.counters.bytes - old for fabric, old in zip(cluster.fabrics, rails, strict=True)]
        undisturbed = quiet and rail_bytes == _on_one_rail(cluster, source.rail(ifname))
        if undisturbed or not ok or attempt == _QUIET_ATTEMPTS - 1:
            return ok, rail_bytes, quiet
    raise AssertionError("at least one attempt is made")


def _on_one_rail(cluster: Cluster, rail: Attachment) -> list[int]:
    """Return the bytes on each fabric if one ping is on one rail, and nothing else is on any."""
    return [_PING_BYTES if number == rail.rail else 0 for number in range(len(cluster.fabrics))]


def _eth0_counters(*pods: Running) -> list[str]:
    return [running.node.call(_counters, running.pod) for running in pods]


def _counters(node: Node, pod: Pod) -> str:  # noqa: ARG001 - it runs on the node
    """Return the line of eth0 in the pod's /proc/net/dev."""
    command = ["nsenter", f"--net={pod.netns}", "cat", "/proc/net/dev"]
    lines = subprocess.run(command, capture_output=True, check=True).stdout.decode().splitlines()
    return next(line for line in lines if line.strip().startswith("eth0:"))


def _stop_rails(cluster: Cluster, source: Running, target: Running, findings: Findings) -> None:
    """Stop the fabric of each rail in turn, and check that only this rail's network fails."""
    for stopped in source.rails:
        cluster.fabrics[stopped.rail].stop()
        other = next(one.ifname for one in source.rails if one is not stopped)
        silent = not source.reaches(target, stopped.ifname, SILENT_SECONDS)
        reached = source.reaches(target, other)
        cluster.fabrics[stopped.rail].start()
        what = f"with rail {stopped.rail}'s fabric stopped, {source.pod.name}'s {stopped.ifname} ping fails and its {other} ping does not"
        findings.check(what, silent and reached)
    again = all(source.reaches(target, one.ifname) for one in source.rails)
    findings.check("with both fabrics started, both succeed again", again)


@contextmanager
def _progress(what: str) -> Iterator[None]:
    print(f"  {what} …", file=sys.stderr, flush=True)
    yield
