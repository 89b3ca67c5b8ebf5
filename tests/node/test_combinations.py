"""Every chain of real plugins has the same outcome with Railnet as without Railnet, and leaves nothing behind."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from railnet.configuration import Configuration
from railnet.daemon.conflist.conflist import compose
from simnode.judge.machine_snapshot import Snapshot, difference
from simnode.kubernetes.runtime import CheckUnsupported, CniFailed
from simnode.node import Node, Pod
from tests.node import host_state
from tests.node.primaries import OURS, remove_stubs, write_stub

FOLDER = OURS.parent
MAPPINGS = {"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"} for port in (8080, 8081)]}
UDP = {"portMappings": [{"hostPort": 5353, "containerPort": 53, "protocol": "udp", "hostIP": "127.0.0.2"}]}
SHAPED = {"bandwidth": {"ingressRate": 800_000, "ingressBurst": 80_000, "egressRate": 800_000, "egressBurst": 80_000}}
MAC = {"mac": "02:00:00:00:00:07"}


def host_local(subnet: str) -> dict[str, Any]:
    return {"type": "host-local", "subnet": subnet, "routes": [{"dst": "0.0.0.0/0"}]}


FLANNEL = {"type": "flannel", "delegate": {"hairpinMode": True, "isDefaultGateway": True}}
BRIDGE = {"type": "bridge", "bridge": "br251", "isGateway": True, "ipMasq": True, "ipam": host_local("10.251.0.0/24")}
PTP = {"type": "ptp", "ipMasq": True, "mtu": 1400, "ipam": host_local("10.252.0.0/24")}
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
SNAT_OFF = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": False}
SYSCTL = {"type": "tuning", "sysctl": {"net.core.somaxconn": "511", "net.ipv4.conf.eth0.arp_notify": "1"}}
TUNED = {"type": "tuning", "promisc": True, "mtu": 1300}
TUNED_MAC = {"type": "tuning", "capabilities": {"mac": True}}
BANDWIDTH = {"type": "bandwidth", "capabilities": {"bandwidth": True}}
FIREWALL = {"type": "firewall", "backend": "iptables"}


@dataclass(frozen=True)
class Chain:
    """A primary's plugins, and the capability arguments that the runtime offers. With `is_list` the file is a conflist, else a conf."""

    plugins: tuple[dict[str, Any], ...]
    offers: Mapping[str, Any] = field(default_factory=dict)
    is_list: bool = True

    def write(self, version: str) -> Path:
        """Write the chain as the node's primary and return the path."""
        head = {"cniVersion": version, "name": "combined"}
        document = {**head, "plugins": self.plugins} if self.is_list else {**head, **self.plugins[0]}
        path = FOLDER / ("10-combined.conflist" if self.is_list else "10-combined.conf")
        path.write_text(json.dumps(document))
        return path


# name → the chained plugins and the capability arguments that the runtime offers them
CHAINS = {
    "flannel": Chain((FLANNEL,)),
    "flannel as conf": Chain((FLANNEL,), is_list=False),
    "flannel portmap": Chain((FLANNEL, PORTMAP)),
    "flannel portmap, mapped": Chain((FLANNEL, PORTMAP), MAPPINGS),
    "flannel portmap, mapped on one host address": Chain((FLANNEL, PORTMAP), UDP),
    "flannel portmap tuning": Chain((FLANNEL, PORTMAP, SYSCTL)),
    "flannel tuning portmap, mapped": Chain((FLANNEL, SYSCTL, PORTMAP), MAPPINGS),
    "flannel tuning of the link": Chain((FLANNEL, TUNED)),
    "flannel tuning of the MAC": Chain((FLANNEL, TUNED_MAC), MAC),
    "flannel bandwidth": Chain((FLANNEL, BANDWIDTH), SHAPED),
    "flannel bandwidth, not asked for": Chain((FLANNEL, BANDWIDTH)),
    "flannel firewall": Chain((FLANNEL, FIREWALL)),
    "flannel portmap firewall bandwidth tuning, all": Chain(
        (FLANNEL, PORTMAP, FIREWALL, BANDWIDTH, SYSCTL), {**MAPPINGS, **SHAPED}
    ),
    "bridge": Chain((BRIDGE,)),
    "bridge as conf": Chain((BRIDGE,), is_list=False),
    "bridge portmap": Chain((BRIDGE, PORTMAP)),
    "bridge portmap, mapped": Chain((BRIDGE, SNAT_OFF), MAPPINGS),
    "bridge tuning of the MAC": Chain((BRIDGE, TUNED_MAC), MAC),
    "ptp": Chain((PTP,)),
    "ptp as conf": Chain((PTP,), is_list=False),
    "ptp portmap, mapped": Chain((PTP, PORTMAP), MAPPINGS),
    "ptp portmap firewall bandwidth, all": Chain((PTP, PORTMAP, FIREWALL, BANDWIDTH), {**MAPPINGS, **SHAPED}),
}
# Versions that Debian's plugins do not support. The plugin flannel is of Debian 11.
UNKNOWN = {("flannel", "1.0.0"), ("firewall", "0.3.1")}
CASES = [
    (name, version)
    for name, chain in CHAINS.items()
    for version in ("0.3.1", "0.4.0", "1.0.0")
    if UNKNOWN.isdisjoint((plugin["type"], version) for plugin in chain.plugins)
]


class Outcome(NamedTuple):
    """ADD's result, the pod's network, the answer of CHECK, and what DEL left; values that differ from pod to pod are masked."""

    result: list[str]
    network: list[str]
    check: str
    left: list[str]


@pytest.fixture(scope="module")
def baselines(shared_node: Node) -> Iterator[dict[tuple[str, str], Outcome]]:
    """Keep the outcome of each chain without Railnet, so that it is measured once."""
    yield {}
    host_state.reset()


@pytest.fixture(scope="module", params=["daemon", "no daemon", "one rail"])
def way(request: pytest.FixtureRequest, shared_node: Node) -> Iterator[str]:
    """Choose how Railnet serves the pod: by its daemon, by the executable alone, or by the daemon with a rail."""
    if request.param == "no daemon":
        shared_node.stop_daemon()
    before = snapshot_of_all()
    yield request.param
    left = difference(before, snapshot_of_all())
    if request.param == "no daemon":
        shared_node.start_daemon()
    assert left == []


def snapshot_of_all() -> Snapshot:
    """Take a snapshot of links, namespaces, mounts, processes and files after the plugins' lasting changes are removed."""
    host_state.reset()
    roots = [f"--root={folder}" for folder in host_state.FOLDERS]
    taken = subprocess.run(
        [sys.executable, "-m", "simnode.judge.machine_snapshot", *roots], capture_output=True, check=True
    )
    snapshot: Snapshot = json.loads(taken.stdout)
    return snapshot


@pytest.fixture
def primaries(shared_node: Node) -> Iterator[None]:
    """Restore the node's CNI configurations after a test."""
    before = {path: path.read_bytes() for path in FOLDER.iterdir()}
    yield
    remove_stubs()
    for path in FOLDER.iterdir():
        path.unlink()
    for path, content in before.items():
        path.write_bytes(content)


def use_plain(chain: Chain, version: str) -> None:
    for path in FOLDER.iterdir():
        path.unlink()
    chain.write(version)


def use_railnet(chain: Chain, version: str) -> None:
    use_plain(chain, version)
    primary = chain.write(version)
    OURS.write_bytes(compose(primary.read_bytes(), str(primary), Configuration()))


def run(node: Node, chain: Chain, vfs: int = 0) -> Outcome:
    """Run a pod on a host that no plugin has changed, and end the pod."""
    host_state.reset()
    pod = node.run_pod("combined", vfs=vfs, capability_args=chain.offers)
    try:
        result = host_state.masked(pod.result.decode()).splitlines()
        network, check = host_state.of_pod(pod.netns), checked(node, pod)
    finally:
        node.remove_pod(pod)
        node.hca.settle()
    return Outcome(result, network, check, host_state.of_host())


def checked(node: Node, pod: Pod) -> str:
    try:
        node.runtime.check(pod.sandbox)
    except CheckUnsupported:
        return "no CHECK"
    except CniFailed as failure:
        # A plugin that crashed prints nothing that a runtime understands; Railnet reports it with code 105.
        broke = failure.code in (None, 105)
        return "CHECK broke" if broke else host_state.masked(failure.invocation.stdout.decode())
    return "CHECK passed"


@pytest.mark.parametrize(("name", "version"), CASES, ids=[f"{name}, {version}" for name, version in CASES])
def test_chain_has_the_same_outcome_with_railnet_as_without_and_leaves_nothing(
    shared_node: Node,
    primaries: None,
    baselines: dict[tuple[str, str], Outcome],
    way: str,
    name: str,
    version: str,
) -> None:
    chain = CHAINS[name]
    if (name, version) not in baselines:
        use_plain(chain, version)
        baselines[name, version] = run(shared_node, chain)
    plain = baselines[name, version]
    use_railnet(chain, version)

    outcome = run(shared_node, chain, vfs=1 if way == "one rail" else 0)

    for ours, plains in zip(outcome, plain, strict=True):
        assert ours == plains


def test_plugin_gets_the_same_environment_and_configuration_as_without_railnet(
    shared_node: Node, primaries: None, way: str
) -> None:
    record = "dir=/run/stub-$CNI_COMMAND; cat >$dir-conf.$$; env | sort >$dir-env.$$; mv $dir-conf.$$ $dir-conf-NAME; mv $dir-env.$$ $dir-env-NAME; "
    for stub in ("stub", "stub2", "stub3"):
        write_stub(stub, record.replace("NAME", stub) + 'printf \'{"cniVersion":"0.4.0"}\'')
    annotations, odd = "io.kubernetes.cri.pod-annotations", {"ballast": {"ü": [1.0, None, "\\u0000"]}}
    chain = Chain(
        (
            {"type": "stub", "capabilities": {annotations: True}, **odd},
            {"type": "stub2", "capabilities": {annotations: False, "portMappings": True}, "runtimeConfig": {"a": 1}},
            {"type": "stub3"},
        ),
        MAPPINGS,
    )

    use_plain(chain, "0.4.0")
    plain = inputs(shared_node, chain, 0)
    use_railnet(chain, "0.4.0")
    through_railnet = inputs(shared_node, chain, 1 if way == "one rail" else 0)

    assert through_railnet == plain
    assert [path for path, text in plain.items() if "config.seen" in text] == [
        f"/run/stub-{command}-conf-stub" for command in ("ADD", "CHECK", "DEL")
    ]


def inputs(node: Node, chain: Chain, vfs: int) -> dict[str, str]:
    """Run a pod over stubs and return the input of each stub on each command. Values that differ from pod to pod are masked."""
    run(node, chain, vfs)
    files = sorted(Path("/run").glob("stub-*-*"))
    found = {str(path): spelled(path) for path in files}
    for path in files:
        path.unlink()
    return found


def spelled(path: Path) -> str:
    text = path.read_text()
    if "-conf-" in path.name:
        text = json.dumps(json.loads(text), sort_keys=True)
    lines = host_state.masked(text).splitlines()
    return "\n".join(line for line in lines if not line.startswith("CNI_ARGS=")) + arguments(text)


def arguments(text: str) -> str:
    """Return the keys of CNI_ARGS in their order; the values differ from pod to pod."""
    given = [line for line in text.splitlines() if line.startswith("CNI_ARGS=")]
    return "".join(";".join(pair.split("=")[0] for pair in line[len("CNI_ARGS=") :].split(";")) for line in given)


def test_plugin_that_does_not_support_the_version_fails_with_its_own_error(shared_node: Node, primaries: None) -> None:
    chain, failures = Chain((FLANNEL, PORTMAP)), []
    for use in (use_plain, use_railnet):
        use(chain, "1.0.0")
        box = shared_node.runtime.create_sandbox("default", "combined", "uid-combined")
        with pytest.raises(CniFailed) as failure:
            shared_node.runtime.add(box)
        shared_node.runtime.remove_sandbox(box)
        failures.append(failure.value.invocation.stdout)

    assert failures[0] == failures[1]
    assert json.loads(failures[0])["code"] == 1
