"""Each finding of `railnet doctor` from the tree of a real node or a broken value, and none of them on a sound node."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from errno import EACCES, EIO, EPERM
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from railnet import VERSION
from railnet.configuration import HostConfiguration
from railnet.doctor import gathering
from railnet.doctor.checks import findings
from railnet.doctor.facts import Bridge, Daemon, Facts, Gpus, KubeletFolders, PortFacts, RuntimeProcess, Unread
from railnet.doctor.finding_kinds import KINDS, Finding
from railnet.doctor.gathering import Places
from railnet.kernel.sysfs import functions
from railnet.kernel.sysfs.folder import NOT_PERMITTED
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.kubelet.root_folder import KubeletFolder
from railnet.vf.inventory import Inventory, Netdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import Network, NoIpam, SliceIpam, StaticIpam
from tests.railnet.kernel import nodes
from tests.railnet.kernel.tree import Function, Tree
from tests.railnet.kubelet.dra_state import a_claim, a_state

ROOT = Path(__file__).resolve().parents[3]
DEFAULT, K0S = (KubeletFolder(Path(path), "a test") for path in ("/var/lib/kubelet", "/var/lib/k0s/kubelet"))
FLANNEL = '{"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}'
PF, VF = "0000:03:00.0", "0000:03:00.1"
SERVED = {"version": VERSION, "reasons": [], "queue": 0, "rails": [], "vfs": [], "sandboxes": []}
LIMITS = "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         {0:<20} {0:<20} bytes\n"


def names(facts: Facts) -> list[str]:
    return [one.name for one in findings(facts)]


def active(function: Function) -> Function:
    """Return a function with a port that the subnet manager has made ACTIVE, in the default partition."""
    (device,) = {path.split("/")[1] for path in function.files if path.startswith("infiniband/")}
    port = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "lid": "0x1d\n",
        "sm_lid": "0x2\n",
        "pkeys/0": "0xffff\n",
    }
    return nodes.plus(function, {f"infiniband/{device}/ports/1/{name}": text for name, text in port.items()})


SOUND = tuple(active(function) for function in nodes.cx7())


def port_of(index: int, **files: str) -> tuple[Function, ...]:
    """Return the sound node with other files of port 1 of one function."""
    changed = {
        f"infiniband/mlx5_{index}/ports/1/{name.replace('__', '/')}": f"{text}\n" for name, text in files.items()
    }
    return (*SOUND[:index], nodes.plus(SOUND[index], changed), *SOUND[index + 1 :])


def gathered(
    tmp_path: Path,
    functions: tuple[Function, ...],
    monkeypatch: pytest.MonkeyPatch,
    *,
    memlock: object = "unlimited",
    host: str = "",
    before: Callable[[Path], None] = lambda _: None,
) -> Facts:
    """Write a node, and gather its facts: the tree, one containerd, the CNI folder, a daemon that serves."""
    Tree(tmp_path / "sys").write(functions)
    process = tmp_path / "proc/77"
    process.mkdir(parents=True)
    (process / "comm").write_text("containerd\n")
    (process / "limits").write_text(LIMITS.format(memlock))
    folder = tmp_path / "root/etc/cni/net.d"
    folder.mkdir(parents=True)
    for name in ("00-railnet.conflist", "10-flannel.conflist", ".cache"):
        (folder / name).touch()
    (folder / "00-old.conf").mkdir()  # no runtime takes a folder for a configuration
    configuration = tmp_path / "node.yaml"
    device_plugins = tmp_path / "device-plugins"
    configuration.write_text(
        f"host: {{sysfs: {tmp_path}/sys, root: {tmp_path}/root, devicePlugins: {device_plugins}, {host}}}\n"
    )
    before(tmp_path)
    for kubelets in (device_plugins, tmp_path / "root/var/lib/kubelet/plugins_registry"):
        kubelets.mkdir(parents=True)
    (device_plugins / "kubelet_internal_checkpoint").write_text("{")  # it is not known what kubelet gave to pods
    monkeypatch.setattr(gathering, "ask", lambda _: SERVED)
    monkeypatch.setattr(gathering, "is_synchronised", lambda: True)
    return gathering.gather(Places(configuration, tmp_path / "cni.sock", tmp_path / "proc"))


def test_sound_node_has_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = gathered(tmp_path, SOUND, monkeypatch)

    assert facts.ports[PciAddress.parse(VF)] == PortFacts(0x1D, 2, (0xFFFF,))
    assert facts.runtimes == (RuntimeProcess("containerd", 77, None),)
    assert facts.configurations == ("00-railnet.conflist", "10-flannel.conflist")
    assert findings(facts) == ()


def test_vf_of_a_claim_is_given_to_its_pod_by_kubelets_own_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod with a VF by DRA is in no entry of the device plugin's checkpoint, and nothing is wrong with it."""

    def prepared(claims: bytes) -> None:
        (tmp_path / "root/var/lib/kubelet/dra_manager_state").write_bytes(claims)
        (tmp_path / "device-plugins/kubelet_internal_checkpoint").unlink()

    gathered(tmp_path, SOUND, monkeypatch)
    host = HostConfiguration(root=tmp_path / "root", device_plugins=tmp_path / "device-plugins")
    prepared(a_state(a_claim(pods=("uid-1", "uid-2"), devices=("pci-0000-03-00-1",))))

    assert gathering._allocated(host, Path("/var/lib/kubelet")) == {
        "uid-1": frozenset({VF}),
        "uid-2": frozenset({VF}),
    }
    (tmp_path / "root/var/lib/kubelet/dra_manager_state").write_text("{")
    assert gathering._allocated(host, Path("/var/lib/kubelet")) is None


TREES: dict[str, tuple[tuple[Function, ...], list[str]]] = {
    "no card": ((), ["no-rail"]),
    "no VFs": ((active(nodes.cx7_pf(PF, 0)),), ["no-vfs"]),
    "no driver": (
        (nodes.without(SOUND[0], "net/", "infiniband")._replace(driver=None), *SOUND[1:]),
        ["pf-without-driver"],
    ),
    "no mlx5_ib": ((nodes.without(SOUND[0], "infiniband"), *SOUND[1:]), ["pf-without-rdma"]),
    "cable": (port_of(0, state="1: DOWN", phys_state="2: Polling", lid="0x0", sm_lid="0x0"), ["port-down"]),
    "no subnet manager": (port_of(0, state="2: INIT", lid="0x0", sm_lid="0x0"), ["no-subnet-manager"]),
    "neither": (nodes.NO_LINK_AND_NO_SUBNET_MANAGER, ["port-down", "no-subnet-manager", "no-vfs", "no-vfs"]),
    "no LID": (port_of(0, lid="0x0"), ["port-without-lid"]),
    "VF's port": (port_of(1, state="1: DOWN", phys_state="3: Disabled"), ["vf-ports-down"]),
    "VF's port in INIT": (port_of(1, state="2: INIT"), ["vf-ports-down"]),
    "limited": (port_of(1, pkeys__0="0x7fff"), ["limited-partition"]),
    "full member of another partition": (port_of(1, pkeys__0="0x7fff", pkeys__1="0x8005"), []),
    "no partition": (port_of(1, pkeys__0="0x0000"), ["no-partition"]),
    "nonsense": (port_of(1, link_layer="nonsense"), ["could-not-be-read"]),
    "nonsense as LID": (port_of(1, lid="nonsense"), ["could-not-be-read"]),
    "zero GUIDs": (nodes.ZERO_GUIDS, ["guid-zero", "guid-zero", "vf-ports-down"]),
    "in pods": (tuple(active(one) if "infiniband/" in "".join(one.files) else one for one in nodes.IN_PODS), []),
}


@pytest.mark.parametrize("case", TREES)
def test_findings_of_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    functions, expected = TREES[case]

    assert names(gathered(tmp_path, functions, monkeypatch)) == expected


@pytest.mark.slow
def test_file_that_hangs_costs_its_function_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "BoundedReads", partial(BoundedReads, 0.2))
    Tree(tmp_path / "before").write(SOUND)  # only to know the path
    (lid,) = (tmp_path / "before/devices").rglob(f"{VF}/infiniband/*/ports/1/lid")
    hung = tmp_path / "sys" / lid.relative_to(tmp_path / "before")
    write = Tree.write

    def write_then_hang(tree: Tree, functions: tuple[Function, ...]) -> None:
        write(tree, functions)
        hung.unlink()
        os.mkfifo(hung)

    monkeypatch.setattr(Tree, "write", write_then_hang)
    facts = gathered(tmp_path, SOUND, monkeypatch)
    os.close(os.open(hung, os.O_WRONLY))  # the thread ends

    (found,) = findings(facts)
    assert (found.name, found.where) == ("could-not-be-read", VF)
    assert set(facts.ports) == {PciAddress.parse(PF), PciAddress.parse("0000:03:00.2")}


def test_guid_of_two_vfs_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = nodes.plus(SOUND[2], {"infiniband/mlx5_2/node_guid": SOUND[1].files["infiniband/mlx5_1/node_guid"]})

    (found,) = findings(gathered(tmp_path, (*SOUND[:2], twin), monkeypatch))

    assert (found.name, found.where) == ("guid-twice", VF)
    assert f"{VF}, 0000:03:00.2" in found.seen


def test_finite_memlock_is_found_on_a_node_with_rails_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = gathered(tmp_path, SOUND, monkeypatch, memlock=8388608)

    (found,) = findings(facts)
    assert found == Finding(
        "memlock-limited", "containerd (77)", "Max locked memory is 8388608 bytes in /proc/77/limits"
    )
    assert names(replace(facts, inventory=Inventory())) == ["no-rail"]


TRAIN_UID = "3f0c1e9a-5b7d-4c2e-9a11-0123456789ab"
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{TRAIN_UID.replace('-', '_')}.slice"
CGROUP = f"0::/../..{SLICE}/cri-containerd-0a1b.scope\n"
WITHOUT, WITH_IPC_LOCK = "00000000a80425fb", "00000000a80465fb"


def a_process(
    tmp_path: Path,
    pid: int,
    memlock: object,
    *,
    name: str = "python3",
    cgroup: str = CGROUP,
    capabilities: str = WITHOUT,
) -> None:
    folder = tmp_path / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text(cgroup)
    (folder / "limits").write_text(LIMITS.format(memlock))
    (folder / "status").write_text(f"Name:\t{name}\nCapPrm:\t{WITH_IPC_LOCK}\nCapEff:\t{capabilities}\n")


def with_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, memlock: object = "unlimited") -> Facts:
    """Gather the facts of a node where the pod ml/train has a rail."""
    pod = {"namespace": "ml", "name": "train", "uid": TRAIN_UID}
    monkeypatch.setitem(SERVED, "sandboxes", [{"pod": pod, "rails": [{"vf": VF}]}])
    return gathered(tmp_path, SOUND, monkeypatch, memlock=memlock)


def test_pod_with_a_rail_that_may_lock_little_is_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_process(tmp_path, 101, 8388608, name="pause")
    a_process(tmp_path, 102, 8388608)
    a_process(tmp_path, 103, 65536, cgroup=f"1:cpu:/\n0::/kubepods/burstable/pod{TRAIN_UID}/0a1b\n")

    (found,) = findings(with_train(tmp_path, monkeypatch))

    assert (found.name, found.where) == ("pod-memlock-limited", "ml/train")
    assert found.seen == (
        "Max locked memory is 8388608 bytes in /proc/102/limits (python3), without IPC_LOCK; 1 more of its processes"
    )


def test_processes_that_are_not_limited_or_have_no_rail_are_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_process(tmp_path, 101, "unlimited")
    a_process(tmp_path, 102, 8388608, capabilities=WITH_IPC_LOCK)
    a_process(tmp_path, 103, 8388608, cgroup=CGROUP.replace("3f0c1e9a", "00000000"))
    a_process(tmp_path, 104, 8388608, cgroup="0::/system.slice/ssh.service\n")
    (tmp_path / "proc/105").mkdir()  # it ends meanwhile
    facts = with_train(tmp_path, monkeypatch)

    assert [process.pid for process in facts.pod_processes] == [101, 102]
    assert findings(facts) == ()


def test_limited_runtime_is_the_only_finding_about_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_process(tmp_path, 102, 8388608)

    assert names(with_train(tmp_path, monkeypatch, memlock=8388608)) == ["memlock-limited"]


@pytest.mark.parametrize(
    ("module", "version", "expected"),
    [
        (False, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15", ["no-gpudirect"]),
        (False, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15", []),
        (True, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15", []),
    ],
)
def test_gpus_without_a_way_to_the_cards_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: bool, version: str, expected: list[str]
) -> None:
    driver = tmp_path / "sys/bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    for name in ("0000:19:00.0", "bind", "module"):
        (driver / name).touch()
    if module:
        (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(version)

    facts = gathered(tmp_path, SOUND, monkeypatch)

    assert facts.gpus.addresses == (PciAddress.parse("0000:19:00.0"),)
    assert names(facts) == expected


@pytest.mark.parametrize(("kind", "expected"), [("DMA-FQ\n", ["iommu-translates"]), ("identity\n", [])])
def test_cards_behind_an_iommu_beside_gpus_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, expected: list[str]
) -> None:
    driver = tmp_path / "sys/bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    (driver / "0000:19:00.0").touch()
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    in_a_group = nodes.plus(SOUND[0], {"iommu_group/type": kind})

    assert names(gathered(tmp_path, (in_a_group, *SOUND[1:]), monkeypatch)) == expected


def serve_gpu(tmp_path: Path) -> None:
    """Have NVIDIA's driver serve the GPU of `nodes.with_gpu`, with the module that RDMA needs."""
    driver = tmp_path / "sys/bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    (driver / nodes.BESIDE_CARD).touch()
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)


@pytest.mark.parametrize(
    ("to_card", "to_gpu", "expected"),
    [
        (0x1D, 0x1D, [nodes.TO_CARD, nodes.TO_GPU]),
        (None, 0x0D, [nodes.TO_GPU]),
        (0x00, None, []),
        (0x13, 0x5D, []),  # nothing is redirected; with Direct Translated P2P
    ],
)
def test_bridges_that_send_packets_between_card_and_gpu_the_long_way_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_card: int | None, to_gpu: int | None, expected: list[str]
) -> None:
    serve_gpu(tmp_path)

    found = findings(gathered(tmp_path, nodes.with_gpu(SOUND, to_card, to_gpu), monkeypatch))

    assert [(one.name, one.where) for one in found] == [("acs-redirects", f"bridge {bridge}") for bridge in expected]


def test_acs_is_said_with_its_bits_and_both_ends_and_only_where_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_gpu(tmp_path)
    facts = gathered(tmp_path, nodes.with_gpu(SOUND, 0x1D, None), monkeypatch)

    (found,) = findings(facts)
    assert found.seen == (
        "ACS Control 0x001d: ReqRedir+ CmpltRedir+ UpstreamFwd+; between card 0000:03:00.0 and GPU 0000:19:00.0"
    )
    unknown = tuple(replace(bridge, acs_control=None) for bridge in facts.pci_bridges)
    assert findings(replace(facts, pci_bridges=unknown)) == ()


def test_pods_and_services_in_the_range_of_net1_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = tmp_path / "root/run/flannel/subnet.env"
    lease.parent.mkdir(parents=True)
    lease.write_text("FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_SUBNET=10.244.3.1/24\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.56.0.1")
    pods, service = findings(gathered(tmp_path, SOUND, monkeypatch))

    assert (pods.name, pods.where, service.name) == ("ranges-overlap", "network default", "ranges-overlap")
    assert pods.seen == "10.56.0.0/16 overlaps 10.0.0.0/8, the pods' network in /run/flannel/subnet.env"
    assert service.seen == "10.56.0.0/16 overlaps 10.56.0.1/32, the address of the Service kubernetes"


def test_rails_with_different_mtus_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = gathered(tmp_path, SOUND, monkeypatch)
    (pf,) = facts.inventory.pfs
    assert pf.netdev is not None
    smaller = replace(pf, address=PciAddress.parse("0000:83:00.0"), vfs=(), netdev=Netdev("ibs9", 9, 2044))

    found = [one for one in findings(replace(facts, inventory=Inventory((pf, smaller)))) if one.name == "mtus-differ"]
    assert found == [Finding("mtus-differ", "InfiniBand rails", f"MTU 2044: ibs9; MTU 4092: {pf.netdev.name}")]


def inherited(tmp_path: Path, **settings: tuple[int, int]) -> None:
    """Write what new namespaces of the node get: for each setting the values of `all` and `default`."""
    for name, values in settings.items():
        for which, value in zip(("all", "default"), values, strict=True):
            file = tmp_path / "proc/sys/net/ipv4/conf" / which / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")


MIXED = Network("mixed", routing="none", ipam=StaticIpam())


def with_rails(facts: Facts, count: int) -> Facts:
    (pf,) = facts.inventory.pfs
    more = (replace(pf, address=PciAddress(0, 0x80 + number, 0, 0), vfs=()) for number in range(1, count))
    return replace(facts, inventory=Inventory((pf, *more)))


def test_strict_filter_is_found_where_pods_have_several_rails_that_the_kernel_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inherited(tmp_path, rp_filter=(0, 1), arp_ignore=(0, 1))
    one_rail = replace(gathered(tmp_path, SOUND, monkeypatch), networks=(Network(), MIXED))
    two_rails = with_rails(one_rail, 2)

    (found,) = findings(two_rails)
    assert (found.name, found.where) == ("rp-filter-strict", "network mixed")
    assert found.seen == "routing is none; net.ipv4.conf.all.rp_filter is 0, net.ipv4.conf.default.rp_filter is 1"
    assert findings(one_rail) == ()
    for network in (Network(), replace(MIXED, routing="auto"), replace(MIXED, ipam=NoIpam())):
        assert findings(replace(two_rails, networks=(network,))) == ()
    only_ipv6 = replace(MIXED, ipam=StaticIpam(ip_network("fd60::/64")))
    assert findings(replace(two_rails, networks=(only_ipv6,))) == ()


@pytest.mark.parametrize(
    ("rp_filter", "strict"),
    [((1, 0), True), ((1, 1), True), ((0, 0), False), ((0, 2), False), ((1, 2), False), ((2, 1), False)],
)
def test_larger_value_of_the_filter_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rp_filter: tuple[int, int], strict: bool
) -> None:
    inherited(tmp_path, rp_filter=rp_filter)
    facts = with_rails(replace(gathered(tmp_path, SOUND, monkeypatch), networks=(MIXED,)), 2)

    assert names(facts) == (["rp-filter-strict"] if strict else [])


def test_settings_that_new_namespaces_do_not_get_are_no_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inherited(tmp_path, rp_filter=(1, 1), arp_ignore=(8, 8))
    choice = tmp_path / "proc/sys/net/core/devconf_inherit_init_net"
    choice.parent.mkdir()
    choice.write_text("2\n")

    assert gathered(tmp_path, SOUND, monkeypatch).inherited == {}


NOTHING, OTHER_PREFIX, EACH_OTHER = "no ARP request", "of another rail's prefix", "for each other's addresses"


@pytest.mark.parametrize(
    ("values", "network", "rails", "wrong"),
    [
        ((0, 0), Network(), 2, None),
        ((1, 1), Network(), 2, None),  # as kube-proxy's strictARP
        ((0, 3), Network(), 2, None),  # Railnet's own value of several rails is instead of `default`
        ((8, 0), Network(), 1, NOTHING),
        ((0, 8), Network(), 2, NOTHING),  # of a pod with one rail
        ((8, 0), MIXED, 2, NOTHING),
        ((2, 0), Network(), 2, OTHER_PREFIX),
        ((0, 2), Network(), 2, OTHER_PREFIX),
        ((2, 0), Network(), 1, None),  # there is no other rail
        ((2, 0), MIXED, 2, None),  # the pod's prefix is what its annotation says
        ((3, 0), Network(), 2, EACH_OTHER),
        ((3, 0), Network(), 1, None),
        ((3, 0), MIXED, 2, None),  # it leaves them to the kernel
        ((8, 8), Network(ipam=NoIpam()), 2, None),
        ((8, 8), Network(ipam=SliceIpam(ip_network("fd56::/48"))), 2, None),  # IPv6 has no ARP
    ],
)
def test_arp_ignore_that_keeps_rails_from_answering_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: tuple[int, int],
    network: Network,
    rails: int,
    wrong: str | None,
) -> None:
    inherited(tmp_path, arp_ignore=values)
    found = findings(with_rails(replace(gathered(tmp_path, SOUND, monkeypatch), networks=(network,)), rails))

    assert [one.name for one in found] == (["arp-ignore-unsuitable"] if wrong else [])
    assert not wrong or found[0].seen.endswith(wrong)


def test_arp_ignore_of_a_node_without_rails_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inherited(tmp_path, arp_ignore=(8, 8))

    assert names(gathered(tmp_path, (), monkeypatch)) == ["no-rail"]


def with_daemon(**told: Any) -> Facts:
    return Facts(Inventory(), Daemon({**SERVED, **told}))


OF_TRAIN = {"pod": {"namespace": "ml", "name": "train", "uid": "uid-1"}, "rails": [{"vf": VF}]}
LOST = OF_TRAIN | {"rails": [{"vf": VF, "ifname": "net1", "lost": "is on the node"}]}
UNHEALTHY = {"reason": "port 1 is '1: DOWN'"}
VALUES = [
    (Facts(Inventory(), Daemon(None, "the daemon does not answer")), "daemon-silent"),
    (with_daemon(reasons=["it recovers"]), "not-served"),
    (with_daemon(version="0.0.1"), "versions-differ"),
    (with_daemon(vfs=[UNHEALTHY, UNHEALTHY, {"reason": None}]), "vf-unhealthy"),
    (with_daemon(quarantine=["/run/railnet/quarantine/x"]), "quarantined-record"),
    (with_daemon(errors=["rail 1: port 1 of mlx5_1 counts too many symbol_error"]), "rail-errors"),
    (with_daemon(kernelLog="/dev/kmsg: No such file or directory"), "kernel-log-unread"),
    (replace(with_daemon(), wrong_configuration="rails: wrong"), "wrong-configuration"),
    (replace(with_daemon(), configurations=("10-flannel.conflist",)), "conflist-missing"),
    (replace(with_daemon(), configurations=()), "conflist-missing"),
    (replace(with_daemon(), configurations=("00-a.conf", "00-railnet.conflist")), "conflist-not-first"),
    (with_daemon(rewrites="another program changed it 4 times within a minute"), "conflist-rewritten"),
    (with_daemon(rewrites=None), None),
    (replace(with_daemon(), bridge=Bridge("10.244.3.1", present=False)), "bridge-of-another-lease"),
    (replace(with_daemon(), bridge=Bridge("10.244.3.1", present=True)), None),
    (replace(with_daemon(sandboxes=[OF_TRAIN]), allocated={"uid-2": frozenset({VF})}), "kubelet-disagrees"),
    (replace(with_daemon(sandboxes=[OF_TRAIN]), allocated={"uid-1": frozenset({VF})}), None),
    (replace(with_daemon(sandboxes=[OF_TRAIN]), allocated=None), None),
    (with_daemon(sandboxes=[LOST]), "rail-lost"),
    (with_daemon(slices="ResourceSlices: cannot list resourceslices: 403"), "slices-outdated"),
    (with_daemon(slices=None), None),
    (replace(with_daemon(), clock_is_synchronised=False), "clock-not-synchronised"),
    (replace(with_daemon(), clock_is_synchronised=None), None),
    (replace(with_daemon(), iommu={PciAddress.parse(PF): "DMA-FQ"}), None),  # without a GPU it costs little
    (
        replace(with_daemon(), ranges={"default": ip_network("10.56.0.0/16")}, occupied={"x": ip_network("10.56.1.1")}),
        "ranges-overlap",
    ),
    (
        replace(with_daemon(), ranges={"default": ip_network("10.56.0.0/16")}, occupied={"x": ip_network("fd00::/8")}),
        None,
    ),
    (replace(with_daemon(), unread=(Unread("/etc/cni/net.d", "cannot be read"),)), "could-not-be-read"),
    (replace(with_daemon(), unread=(Unread("/etc/cni/net.d", "cannot be read", EIO),)), "could-not-be-read"),
    (replace(with_daemon(), unread=(Unread("/etc/cni/net.d", "cannot be read", EACCES),)), "not-permitted"),
    (replace(with_daemon(), unread=(Unread("/etc/cni/net.d", "cannot be read", EPERM),)), "not-permitted"),
    (replace(with_daemon(), unread=(Unread("0000:03:00.0", f"x/numa_node: {NOT_PERMITTED}"),)), "not-permitted"),
    (replace(with_daemon(), primary_trouble="flannel has no lease for this node"), "primary-not-available"),
    (replace(with_daemon(), kubelet=KubeletFolders(DEFAULT)), None),
    (replace(with_daemon(), kubelet=KubeletFolders(DEFAULT, K0S)), "kubelet-elsewhere"),
    (replace(with_daemon(), kubelet=KubeletFolders(K0S, K0S)), None),
    (replace(with_daemon(), kubelet=KubeletFolders(DEFAULT, None, ("/x: absent",))), "kubelet-folder-missing"),
    (
        replace(with_daemon(), gpus=Gpus((PciAddress.parse("0000:19:00.0"),))),
        None,
    ),  # a node without rails needs no GPUDirect
]


def test_findings_about_configurations_name_the_configured_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "root/snap/cni-network"

    def with_primary(_: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "10-flannel.conflist").touch()

    facts = gathered(tmp_path, SOUND, monkeypatch, before=with_primary, host="cniConf: /snap/cni-network")

    assert facts.configurations == ("10-flannel.conflist",)
    assert [(one.name, one.where) for one in findings(facts)] == [("conflist-missing", "/snap/cni-network")]


def test_machine_that_is_no_node_has_this_finding_and_none_of_a_node() -> None:
    facts = Facts(Inventory(), Daemon(None, "silent"), is_node=False, clock_is_synchronised=False)

    assert names(facts) == ["not-a-node"]


def with_flannel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease: str | None) -> Facts:
    folder = tmp_path / "root/etc/cni/net.d"
    folder.mkdir(parents=True)
    (folder / "10-flannel.conflist").write_text(FLANNEL)
    if lease is not None:
        (tmp_path / "root/run/flannel").mkdir(parents=True)
        (tmp_path / "root/run/flannel/subnet.env").write_text(lease)
    (tmp_path / "node.yaml").write_text(f"host: {{sysfs: {tmp_path}/sys, root: {tmp_path}/root}}\n")
    Tree(tmp_path / "sys").write(SOUND)
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(gathering, "ask", lambda _: SERVED)
    return gathering.gather(Places(tmp_path / "node.yaml", tmp_path / "cni.sock", tmp_path / "proc"))


@pytest.mark.parametrize(
    ("lease", "trouble"),
    [
        ("FLANNEL_SUBNET=10.244.3.1/24\n", None),
        ("FLANNEL_SUBNET=\n", "/run/flannel/subnet.env names no subnet"),
        (None, "/run/flannel/subnet.env cannot be read: No such file or directory"),
    ],
)
def test_lease_for_which_railnets_status_fails_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease: str | None, trouble: str | None
) -> None:
    facts = with_flannel(tmp_path, monkeypatch, lease)

    seen = [finding.seen for finding in findings(facts) if finding.name == "primary-not-available"]
    assert seen == ([] if trouble is None else [f"flannel has no lease for this node: {trouble}"])


def test_kubelet_that_runs_elsewhere_is_named_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root/data/kubelet/plugins_registry").mkdir(parents=True)
    facts = gathered(tmp_path, SOUND, monkeypatch, host=f"kubelet: {tmp_path}/elsewhere", before=a_kubelet)

    (finding, missing) = findings(facts)
    assert (finding.name, missing.name) == ("kubelet-elsewhere", "kubelet-folder-missing")
    assert "host.kubelet of node.yaml" in finding.seen
    assert "/data/kubelet (--root-dir of kubelet, process 812)" in finding.seen


def a_kubelet(tmp_path: Path) -> None:
    process = tmp_path / "proc/812"
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(b"/usr/bin/kubelet\0--root-dir=/data/kubelet\0")
    (process / "root").symlink_to(tmp_path / "root")


@pytest.mark.parametrize(("facts", "name"), VALUES)
def test_findings_of_a_value(facts: Facts, name: str | None) -> None:
    assert sorted(names(facts)) == sorted(["no-rail", *([name] if name else [])])


def test_missing_folder_and_wrong_configuration_do_not_end_the_look(tmp_path: Path) -> None:
    configuration = tmp_path / "node.yaml"
    configuration.write_text("nonsense: 1\n")
    a_kubelet(tmp_path)

    facts = gathering.gather(Places(configuration, tmp_path / "cni.sock", tmp_path / "proc"))

    assert facts.wrong_configuration is not None
    assert "nonsense" in facts.wrong_configuration
    assert "daemon-silent" in names(facts)


def test_every_kind_of_finding_has_its_section_and_each_section_is_a_kind() -> None:
    page = (ROOT / "docs/doctor.md").read_text()
    sections = re.findall(r"^## (.+)\n\nSeverity: (\w+)\.", page, re.MULTILINE)

    assert sections == [(name, kind.severity) for name, kind in KINDS.items()]
    assert len(re.findall(r"^## ", page, re.MULTILINE)) == len(KINDS) + 2  # "A pod", "The cluster"


def test_page_has_the_remedy_of_each_kind_of_finding() -> None:
    words = " ".join((ROOT / "docs/doctor.md").read_text().split())

    assert [name for name, kind in KINDS.items() if f"To do: {kind.remedy}" not in words] == []
