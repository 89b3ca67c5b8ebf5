"""`railnet demo`: pods on a simulated node, pings over both networks, and what is left over when all is taken down.

The node runs in namespaces of its own (`simnode`), in a child process that gives its findings as JSON. This process looks at
the machine before and after, renders, and judges.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from simnode.node import Node, Pod
from simnode.ping import ping
from simnode.snapshot import Snapshot, difference
from vf.errors import Misconfigured
from vf.record import Record, decode

_PLUGINS = "RAILNET_CNI_PLUGINS"
_JOURNAL = Path("/run/railnet/journal")
# Where a node's programs write. /run/railnet/lock, socket and all: what DEL leaves there is left over, too.
_NODE_FOLDERS = ("/run", "/var/lib/cni", "/var/lib/kubelet", "/var/lib/railnet", "/etc/cni", "/opt/cni/bin", "/dev")
_MACHINE_FOLDERS = (
    "/run",
    "/var/lib/cni",
    "/var/lib/railnet",
    "/etc/cni",
    "/etc/railnet",
    "/opt/cni",
    "/dev/infiniband",
)
_PODS = (("plain-0", 0), ("plain-1", 0), ("train-0", 1), ("train-1", 1))
_LOOKS, _LOOK_SECONDS = 5, 0.5
_QUIET_ATTEMPTS = 5  # IPv6 neighbour discovery may speak on eth0 at any moment


@dataclass(slots=True)
class Findings:
    """What the node showed, in the form of `railnet demo --json`."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    pings: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    fabric_bytes: int = 0
    left_over: int = 0
    left_over_items: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether everything was as it should be."""
        return all(entry["ok"] for entry in (*self.pings, *self.checks)) and not self.left_over_items


def run(*, as_json: bool) -> int:
    """Run the demo and print it; gives 0 if everything held, 1 if not.

    Raises:
        Misconfigured: the CNI plugins are not there.
    """
    if not os.environ.get(_PLUGINS):
        raise Misconfigured(
            f"{_PLUGINS} should be a folder with flannel, bridge, host-local, …; `scripts/demo` sets it"
        )
    before = _snapshot(_MACHINE_FOLDERS)
    node = subprocess.run(
        [sys.executable, "-m", "simnode", "exec", "--", sys.executable, "-m", "railnet", "demo", "--inside"],
        stdout=subprocess.PIPE,
        check=False,
    )
    if node.returncode:
        return node.returncode
    findings = Findings(**json.loads(node.stdout))
    findings.left_over_items += [f"machine: {item}" for item in _left_over(before)]
    findings.left_over = len(findings.left_over_items)
    print(json.dumps(asdict(findings), indent=2) if as_json else "\n".join(_rendered(findings)))
    return 0 if findings.held else 1


def run_inside() -> int:
    """Run the scenario in this process's namespaces, which must be a simulated node's; prints findings as JSON."""
    with Node(Path(os.environ[_PLUGINS])) as node:
        findings = _scenario(node)
    json.dump(asdict(findings), sys.stdout)
    return 0


def _scenario(node: Node) -> Findings:
    findings = Findings()
    with _progress("a pod on flannel alone, so that its bridge exists"):
        node.remove_pod(node.run_pod("before-railnet"))
    with _progress("installing Railnet, starting its daemon, making 8 VFs"):
        node.install()
        node.start_daemon()
    before = _snapshot(_NODE_FOLDERS)
    with _progress(f"running {len(_PODS)} pods"):
        pods = [node.run_pod(name, vfs) for name, vfs in _PODS]
    records = _records()
    findings.pods = [_described(pod, records.get(pod.container_id)) for pod in pods]
    with _progress("pinging over both networks"):
        _ping_everything(node, pods, records, findings)
    with _progress("taking the pods down, looking for what is left over"):
        for pod in pods:
            node.remove_pod(pod)
        node.hca.settle()
        findings.left_over_items = [f"node: {item}" for item in difference(before, _snapshot(_NODE_FOLDERS))]
    return findings


def _ping_everything(node: Node, pods: list[Pod], records: dict[str, Record], findings: Findings) -> None:
    plain, other, train, peer = pods
    for source, target in ((plain, other), (plain, train), (train, peer)):
        ok = ping(source.netns, _eth0(target), ifname="eth0")
        findings.pings.append({"from": source.name, "to": target.name, "network": "eth0", "ok": ok})
    net1 = str(records[peer.container_id].attachments[0].addresses[0].ip)
    carried, quiet, ok = _quiet_ping(node, train, net1)
    findings.pings.append({"from": train.name, "to": peer.name, "network": "net1", "ok": ok})
    findings.fabric_bytes = carried
    findings.checks.append({"what": f"the net1 ping's {carried} bytes were on the fabric", "ok": carried > 0})
    findings.checks.append({"what": "eth0's counters stayed flat meanwhile", "ok": quiet})
    node.fabrics[0].stop()
    findings.checks.append(
        {"what": "with the fabric stopped the net1 ping fails", "ok": not ping(train.netns, net1, ifname="net1")}
    )
    node.fabrics[0].start()
    findings.checks.append(
        {"what": "with the fabric started it succeeds again", "ok": ping(train.netns, net1, ifname="net1")}
    )


def _quiet_ping(node: Node, pod: Pod, address: str) -> tuple[int, bool, bool]:
    """Ping over net1; gives the fabric's bytes, whether eth0 was silent, and whether it was answered."""
    for attempt in range(_QUIET_ATTEMPTS):
        fabric, eth0 = node.fabrics[0].counters.bytes, _counters(pod, "eth0")
        ok = ping(pod.netns, address, ifname="net1")
        carried, quiet = node.fabrics[0].counters.bytes - fabric, _counters(pod, "eth0") == eth0
        if quiet or not ok or attempt == _QUIET_ATTEMPTS - 1:
            return carried, quiet, ok
    raise AssertionError("at least one attempt is made")


def _counters(pod: Pod, ifname: str) -> str:
    """Give the line of an interface in the pod's /proc/net/dev."""
    lines = subprocess.run(
        ["nsenter", f"--net={pod.netns}", "cat", "/proc/net/dev"], capture_output=True, check=True
    ).stdout
    return next(line for line in lines.decode().splitlines() if line.strip().startswith(f"{ifname}:"))


def _records() -> dict[str, Record]:
    records = [decode(path.read_bytes()) for path in _JOURNAL.glob("*.json")]
    return {record.container_id: record for record in records}


def _described(pod: Pod, record: Record | None) -> dict[str, Any]:
    attachments = () if record is None else record.attachments
    rails = [
        {
            "ifname": one.ifname,
            "address": ", ".join(map(str, one.addresses)),
            "vf": str(one.vf),
            "guid": str(one.guid),
            "rail": one.rail,
        }
        for one in attachments
    ]
    return {"name": pod.name, "node": "node-a", "eth0": _eth0(pod), "rails": rails, "add_ms": round(pod.add_ms, 1)}


def _eth0(pod: Pod) -> str:
    return str(ip_interface(json.loads(pod.result)["ips"][0]["address"]).ip)


def _snapshot(folders: Iterable[str]) -> Snapshot:
    """Look at the machine by a process that shares nothing with this one."""
    roots = [argument for folder in folders for argument in ("--root", folder)]
    done = subprocess.run([sys.executable, "-m", "simnode.snapshot", *roots], stdout=subprocess.PIPE, check=True)
    snapshot: Snapshot = json.loads(done.stdout)
    return snapshot


def _left_over(before: Snapshot) -> list[str]:
    """Say what is new on the machine, and stays: others start programs and write files meanwhile, too."""
    for _ in range(_LOOKS):
        if not difference(before, _snapshot(_MACHINE_FOLDERS)):
            return []
        time.sleep(_LOOK_SECONDS)
    return difference(before, _snapshot(_MACHINE_FOLDERS))


@contextmanager
def _progress(what: str) -> Iterator[None]:
    print(f"  {what} …", file=sys.stderr, flush=True)
    yield


def _rendered(findings: Findings) -> Iterator[str]:
    rows = [("pod", "eth0", "net1", "VF", "GUID", "rail", "ADD ms")]
    for pod in findings.pods:
        rail = pod["rails"][0] if pod["rails"] else dict.fromkeys(("address", "vf", "guid", "rail"), "-")
        rows.append(
            (
                pod["name"],
                pod["eth0"],
                rail["address"],
                rail["vf"],
                rail["guid"],
                str(rail["rail"]),
                f"{pod['add_ms']:.1f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield ""
    for number, row in enumerate(rows):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield "  " + "  ".join("─" * width for width in widths)
    yield ""
    for entry in findings.pings:
        yield f"  {_mark(entry['ok'])} {entry['network']}  {entry['from']} → {entry['to']}"
    for entry in findings.checks:
        yield f"  {_mark(entry['ok'])} {entry['what']}"
    yield f"  {_mark(not findings.left_over)} left over: {findings.left_over}  (links, namespaces, mounts, processes, files)"
    yield from (f"      {item}" for item in findings.left_over_items)
    yield ""


def _mark(ok: bool) -> str:
    return "✓" if ok else "✗"
