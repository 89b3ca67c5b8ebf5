"""A node with pods at rest, and leaks to plant on it: for each leak, the kinds of violation, and how it is planted and removed."""

import fcntl
import os
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record, decode, encode
from simnode.judge.invariants import LiveSandbox, Violation, of_sandboxes, violations
from simnode.linux import libc, netns
from simnode.node import Node, Pod
from simnode.waiting import wait_until

JOURNAL, RESULTS = Path("/run/railnet/journal"), Path("/var/lib/cni/results")
CBR0 = Path("/var/lib/cni/networks/cbr0")
FREE, FREE_VF = "ibs5v6", PciAddress.parse("0000:03:00.7")  # two of eight VFs are in pods, the first two
FREE_GUID = Path("/sys/bus/pci/devices/0000:03:00.0/sriov/6/node")
PORT = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
DEAD, PLANTED = "0" * 64, Path("/run/netns/planted")
Planted = AbstractContextManager[object]


class JudgedNode:
    """A node with a plain pod and two pods with a rail, and the state of the node before these pods."""

    def __init__(self, node: Node) -> None:
        self.node = node
        node.remove_pod(node.run_pod("before", vfs=1, capability_args=PORT))
        self.before = node.look()
        self.plain = node.run_pod("plain", capability_args=PORT)
        self.one, self.two = node.run_pod("one", vfs=1), node.run_pod("two", vfs=1)
        self.living = [pod.live_sandbox for pod in (self.plain, self.one, self.two)]

    def remove_pods(self) -> None:
        """Remove the pods, each with its DEL: a host port that is left takes the connections of the tests that come later."""
        for pod in (self.plain, self.one, self.two):
            self.node.remove_pod(pod)

    def judge(self, living: Collection[LiveSandbox] | None = None) -> list[Violation]:
        return violations(self.before, self.node.look(), self.living if living is None else living)

    def judge_resting(self) -> list[Violation]:
        return of_sandboxes(self.before, self.node.look_at([one.netns for one in self.living]), self.living)


@contextmanager
def planted_by(plant: Callable[[], object], remove: Callable[[], object]) -> Iterator[None]:
    plant()
    try:
        yield
    finally:
        remove()


def commands(plant: str, remove: str, inside: Pod | None = None) -> Planted:
    enter = [] if inside is None else ["nsenter", f"--net={inside.netns}"]
    run = partial(subprocess.run, check=True)
    return planted_by(lambda: run([*enter, *plant.split()]), lambda: run([*enter, *remove.split()]))


def written(path: Path, content: bytes = b"") -> Planted:
    """Write a file, also in a missing folder; restore the file and the folder at the end."""
    was = path.read_bytes() if path.exists() else None
    new = [folder for folder in (path.parent,) if not folder.exists()]

    def plant() -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    def remove() -> None:
        path.unlink() if was is None else path.write_bytes(was)
        for folder in new:
            folder.rmdir()

    return planted_by(plant, remove)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, because the daemon removes a lock file that no process holds."""
    with path.open("x") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        path.unlink()


def absent(path: Path) -> Planted:
    was = path.read_bytes()
    return planted_by(path.unlink, lambda: path.write_bytes(was))


def record(pod: Pod) -> Record:
    return decode(path_of(pod).read_bytes())


def path_of(pod: Pod) -> Path:
    return JOURNAL / f"{pod.container_id}@eth0.json"


def recorded_of_dead(of: Record, **changed: object) -> Planted:
    """Write a record of a dead sandbox; its one rail is that of `of`, with the changes."""
    rail = replace(of.attachments[0], **{"vf": FREE_VF, "addresses": (), **changed})
    return written(JOURNAL / f"{DEAD}@eth0.json", encode(replace(of, container_id=DEAD, attachments=(rail,))))


def address(pod: Pod, ifname: str) -> str:
    lines = subprocess.run(
        ["nsenter", f"--net={pod.netns}", "ip", "-4", "-o", "address", "show", ifname], capture_output=True, check=True
    )
    return lines.stdout.decode().split()[3]


@contextmanager
def running(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def namespace_without_name() -> Iterator[None]:
    """Keep a network namespace alive by a descriptor only."""
    netns.create(PLANTED)
    fd = os.open(PLANTED, os.O_RDONLY)
    netns.remove(PLANTED)
    yield
    os.close(fd)


@contextmanager
def mounted() -> Iterator[None]:
    libc.mount("tmpfs", "/mnt", fstype="tmpfs")
    yield
    libc.unmount("/mnt")


@contextmanager
def unbound(node: Node) -> Iterator[None]:
    drivers = Path("/sys/bus/pci/drivers/mlx5_core")
    (drivers / "unbind").write_text(f"{FREE_VF}\n")
    yield
    (drivers / "bind").write_text(f"{FREE_VF}\n")


LEAKS: dict[str, tuple[set[str], Callable[[JudgedNode], Planted]]] = {
    "a VF in two records": (
        {"VF owned twice", "record left over"},
        lambda g: recorded_of_dead(record(g.one), vf=record(g.one).attachments[0].vf),
    ),
    "an address in two records": (
        {"address owned twice", "record left over"},
        lambda g: recorded_of_dead(record(g.one), addresses=record(g.one).attachments[0].addresses),
    ),
    "an address in two pods": (
        {"address on two links", "address wrong"},
        lambda g: commands(
            f"ip address add {address(g.plain, 'eth0')} dev eth0",
            f"ip address del {address(g.plain, 'eth0')} dev eth0",
            g.one,
        ),
    ),
    "a record": ({"record left over"}, lambda g: recorded_of_dead(record(g.one))),
    "a record under another name": (
        {"record left over", "VF owned twice", "address owned twice"},
        lambda g: written(JOURNAL / f"{g.one.container_id}@eth1.json", path_of(g.one).read_bytes()),
    ),
    "a truncated record": (
        {"record unreadable"},
        lambda g: written(JOURNAL / f"{DEAD}@eth0.json", path_of(g.one).read_bytes()[:-40]),
    ),
    "a record that is gone": ({"record wrong", "link left over"}, lambda g: absent(path_of(g.one))),
    "a record that is not attached": (
        {"record wrong"},
        lambda g: written(path_of(g.one), encode(replace(record(g.one), stage="planned"))),
    ),
    "a record that names a VF's netdev otherwise": (
        {"record wrong"},
        lambda g: written(
            path_of(g.one),
            encode(replace(record(g.one), attachments=(replace(record(g.one).attachments[0], host_ifname="net1"),))),
        ),
    ),
    "a temporary file of the journal": ({"file left over"}, lambda g: written(JOURNAL / ".half-written")),
    "a quarantined record": ({"file left over"}, lambda g: written(JOURNAL.with_name("quarantine") / "x.json")),
    "a lock": ({"file left over"}, lambda g: locked(JOURNAL.with_name("lock") / f"{DEAD}@eth0")),
    "a temporary socket": ({"file left over"}, lambda g: written(Path("/run/railnet/.cni.sock.1"))),
    "a file that is gone": ({"file missing"}, lambda g: absent(CBR0 / "last_reserved_ip.0")),
    "flannel's state": ({"file left over"}, lambda g: written(Path("/var/lib/cni/flannel") / DEAD)),
    "libcni's result": ({"file left over"}, lambda g: written(RESULTS / f"cbr0-{DEAD}-eth0")),
    "host-local's address": (
        {"address left over"},
        lambda g: written(CBR0 / "10.244.3.200", f"{DEAD}\r\neth0".encode()),
    ),
    "host-local's second address of one pod": (
        {"address wrong"},
        lambda g: written(CBR0 / "10.244.3.200", f"{g.one.container_id}\r\neth0".encode()),
    ),
    "host-local's address that is gone": (
        {"address wrong"},
        lambda g: absent(CBR0 / address(g.one, "eth0").partition("/")[0]),
    ),
    "an IPAM plugin's address for a rail": (
        {"address left over", "file left over"},
        lambda g: written(CBR0.with_name("railnet-leased") / "10.61.3.2", f"{g.one.container_id}\r\nnet1".encode()),
    ),
    "a link": ({"link left over"}, lambda g: commands("ip link add planted type bridge", "ip link del planted")),
    "a veth": ({"link left over"}, lambda g: commands("ip link add veth0 type veth peer veth1", "ip link del veth0")),
    "a link in a pod": (
        {"link left over"},
        lambda g: commands("ip link add planted type bridge", "ip link del planted", g.one),
    ),
    "a pod's eth0 under another name": (
        {"link missing", "link left over"},
        lambda g: commands("ip link set eth0 name eth9", "ip link set eth9 name eth0", g.plain),
    ),
    "a named network namespace": (
        {"network namespace left over", "file left over", "mount left over"},
        lambda g: planted_by(lambda: netns.create(PLANTED), lambda: netns.remove(PLANTED)),
    ),
    "a network namespace of a descriptor": ({"network namespace left over"}, lambda g: namespace_without_name()),
    "a network namespace of a process": (
        {"network namespace left over", "process left over"},
        lambda g: in_new_namespace(running("unshare", "--net", "sleep", "60")),
    ),
    "a mount": ({"mount left over"}, lambda g: mounted()),
    "a process": ({"process left over"}, lambda g: running("sleep", "60")),
    "an iptables rule": (
        {"iptables rule left over"},
        lambda g: commands(
            f"iptables -t nat -A CNI-HOSTPORT-DNAT -m comment --comment {DEAD} -j RETURN",
            f"iptables -t nat -D CNI-HOSTPORT-DNAT -m comment --comment {DEAD} -j RETURN",
        ),
    ),
    "an iptables chain": (
        {"iptables rule left over"},
        lambda g: commands("iptables -t nat -N CNI-DN-planted", "iptables -t nat -X CNI-DN-planted"),
    ),
    "a free VF that is up": (
        {"link wrong"},
        lambda g: commands(f"ip link set {FREE} up", f"ip link set {FREE} down"),
    ),
    "an alternative name of a free VF": (
        {"setting left over"},
        lambda g: commands(
            f"ip link property add dev {FREE} altname planted", f"ip link property del dev {FREE} altname planted"
        ),
    ),
    "another group and MTU of a free VF": (
        {"setting left over"},
        lambda g: commands(f"ip link set {FREE} group 9 mtu 2000", f"ip link set {FREE} group default mtu 4092"),
    ),
    "an address on a free VF": (
        {"address left over"},
        lambda g: commands(f"ip address add 10.56.1.77/17 dev {FREE}", f"ip address flush dev {FREE}"),
    ),
    "a free VF under another name": (
        {"VF misplaced", "link left over"},
        lambda g: commands(f"ip link set {FREE} name net1", f"ip link set net1 name {FREE}"),
    ),
    "a free VF in a pod": (
        {"VF misplaced", "link left over"},
        lambda g: planted_by(
            lambda: subprocess.run(["ip", "link", "set", FREE, "netns", g.plain.netns], check=True),
            lambda: subprocess.run(
                ["nsenter", f"--net={g.plain.netns}", "ip", "link", "set", FREE, "netns", "1"], check=True
            ),
        ),
    ),
    "a free VF without a driver": (
        {"driver wrong", "VF misplaced", "GUID wrong", "file missing"},  # its netdev and devices are gone
        lambda g: unbound(g.node),
    ),
    "a GUID that its PF was told": ({"GUID wrong"}, lambda g: written(FREE_GUID, b"00:11:22:33:44:55:66:77\n")),
    "a rail under another name": (
        {"VF misplaced", "link missing", "link left over"},
        lambda g: commands("ip link set net1 name net9", "ip link set net9 name net1", g.two),
    ),
    "a rail with another MTU": (
        {"link wrong"},
        lambda g: commands("ip link set net1 mtu 2000", "ip link set net1 mtu 4092", g.two),
    ),
    "a rail that is down": ({"link wrong"}, lambda g: commands("ip link set net1 down", "ip link set net1 up", g.two)),
    "a rail with a second address": (
        {"address wrong"},
        lambda g: commands("ip address add 10.9.9.9/32 dev net1", "ip address del 10.9.9.9/32 dev net1", g.two),
    ),
}


@contextmanager
def in_new_namespace(namespace: Planted) -> Iterator[None]:
    """Wait until unshare(1) has made its namespace and executed its command."""
    with namespace:
        own = netns.inode()
        wait_until(
            lambda: any(_netns_of(process) not in (None, own) for process in Path("/proc").glob("[0-9]*")),
            10,
            "the new network namespace",
        )
        yield


def _netns_of(process: Path) -> int | None:
    try:
        return netns.inode(process / "ns/net")
    except OSError:
        return None
