"""Files as flannel, host-local and libcni write them, by the plugins themselves on a node; times are small numbers."""

import json

from cni.host.chain import Primary
from cni.primary_gc.state_files import StateFile, StateFolder, parse, state_folders
from railnet.kernel.foreign_state_files import Entry

FLANNEL = Primary("cbr0", "0.3.1", [{"type": "flannel", "delegate": {}}, {"type": "portmap"}])
ADDRESSES = StateFolder("host-local", "/var/lib/cni/networks/cbr0")
STATES = StateFolder("flannel", "/var/lib/cni/flannel")
RESULTS = StateFolder("libcni", "/var/lib/cni/results")
NETNS = "/run/netns/cni-1"


def an_address(container_id: str = "c0ffee", address: str = "10.244.3.7", modified: float = 0) -> StateFile:
    content = f"{container_id}\r\neth0".encode() if container_id else b""
    return state_file(ADDRESSES, Entry(address, content, modified))


def a_state(container_id: str = "c0ffee", name: str = "cbr0", modified: float = 0) -> StateFile:
    return state_file(STATES, Entry(container_id, json.dumps({"name": name, "type": "bridge"}).encode(), modified))


def a_result(container_id: str = "c0ffee", modified: float = 0, sandbox: str = NETNS) -> StateFile:
    return state_file(RESULTS, Entry(f"cbr0-{container_id}-eth0", cached(container_id, sandbox=sandbox), modified))


def cached(container_id: str = "c0ffee", network: str = "cbr0", sandbox: str = NETNS) -> bytes:
    result = {
        "cniVersion": "0.3.1",
        "interfaces": [
            {"name": "cni0", "mac": "2e:85:7f:06:c5:91"},
            {"name": "veth0a1b2c3d", "mac": "D6:4F:55:B8:9B:8F"},
            {"name": "eth0", "mac": "ca:f6:d1:a9:7a:5a", "sandbox": sandbox},
        ],
        "ips": [{"version": "4", "interface": 2, "address": "10.244.3.7/24", "gateway": "10.244.3.1"}],
    }
    document = {
        "kind": "cniCacheV1",
        "containerId": container_id,
        "config": "e30=",
        "ifName": "eth0",
        "networkName": network,
        "cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "ml"], ["K8S_POD_NAME", "train-0"]],
        "capabilityArgs": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
        "result": result,
    }
    return json.dumps(document).encode()


def state_file(folder: StateFolder, entry: Entry, primary: Primary = FLANNEL) -> StateFile:
    assert folder in state_folders(primary)
    found = parse(folder, entry, primary.name)
    assert found is not None
    return found
