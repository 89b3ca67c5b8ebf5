"""The findings of `railnet doctor` about RoCE, from the tree of a node with one RoCE card; none of them on a sound node."""

from dataclasses import replace
from pathlib import Path

import pytest

from railnet import VERSION
from railnet.doctor import gathering
from railnet.doctor.checks import findings
from railnet.doctor.facts import Daemon, Facts
from railnet.doctor.finding_kinds import Finding
from railnet.doctor.gathering import Places
from railnet.fabric.roce import FlowControl
from railnet.kernel.netlink import dcb
from tests.railnet.kernel.roce_node import PF, VF, roce_node
from tests.railnet.kernel.tree import Function, Tree

LOSSLESS = FlowControl((3,), by_dscp=True)
IPV4 = (3, "RoCE v2", "0000:0000:0000:0000:0000:ffff:0a3a:0001")
OLD = (2, "IB/RoCE v1", "0000:0000:0000:0000:0000:ffff:0a3a:0001")


def gathered(
    tmp_path: Path,
    functions: tuple[Function, ...],
    monkeypatch: pytest.MonkeyPatch,
    flow: FlowControl | None = LOSSLESS,
    state: str = "attached",
) -> Facts:
    """Write a node with a daemon that has the VF in this state; return its facts."""
    Tree(tmp_path / "sys").write(functions)
    (tmp_path / "proc").mkdir()
    folder = tmp_path / "root/etc/cni/net.d"
    folder.mkdir(parents=True)
    (folder / "00-railnet.conflist").touch()
    configuration = tmp_path / "node.yaml"
    for kubelets in (tmp_path / "device-plugins", tmp_path / "root/var/lib/kubelet/plugins_registry"):
        kubelets.mkdir(parents=True)
    configuration.write_text(
        f"host: {{sysfs: {tmp_path}/sys, root: {tmp_path}/root, devicePlugins: {tmp_path}/device-plugins}}\n"
        "pools: [{resource: rdma/roce_vf, select: {linkType: [ether]}}]\n"
    )
    told = {"version": VERSION, "reasons": [], "vfs": [{"vf": VF, "state": state, "reason": None}]}
    monkeypatch.setattr(gathering, "ask", lambda _: told)
    monkeypatch.setattr(gathering, "is_synchronised", lambda: True)
    monkeypatch.setattr(dcb, "flow_control", lambda _: flow)
    return gathering.gather(Places(configuration, tmp_path / "cni.sock", tmp_path / "proc"))


def test_sound_node_has_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(gathered(tmp_path, roce_node(OLD, IPV4), monkeypatch)) == ()


@pytest.mark.parametrize(
    ("functions", "name", "seen"),
    [
        (roce_node(OLD, local=False), "roce-without-gid", "none of 1 GIDs is of RoCE v2"),
        (roce_node(local=False), "roce-without-gid", "none of 0 GIDs is of RoCE v2"),
        (roce_node(), "roce-link-local-only", "GID 1: fe80::ba59:9fff:fef9:8f86"),
    ],
)
def test_gids_of_a_pods_vf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, functions: tuple[Function, ...], name: str, seen: str
) -> None:
    facts = gathered(tmp_path, functions, monkeypatch)

    assert findings(facts) == (Finding(name, VF, seen),)
    assert findings(replace(facts, daemon=Daemon({**(facts.daemon.told or {}), "vfs": []}))) == ()


def test_gids_of_a_free_vf_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(gathered(tmp_path, roce_node(local=False), monkeypatch, state="free")) == ()


@pytest.mark.parametrize(
    ("mtu", "seen"),
    [(1500, "MTU 1500: an RDMA packet carries 1024 bytes"), (256, "MTU 256: no RDMA packet fits")],
)
def test_small_mtu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mtu: int, seen: str) -> None:
    facts = gathered(tmp_path, roce_node(IPV4, mtu=mtu), monkeypatch)

    assert findings(facts) == (Finding("roce-small-mtu", f"{PF} (ens5)", seen),)


@pytest.mark.parametrize(
    ("by_dscp", "seen"),
    [(True, "pfc_en 0x00; DSCP chooses the priority"), (False, "pfc_en 0x00; VLAN priority chooses the priority")],
)
def test_port_without_lossless_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_dscp: bool, seen: str
) -> None:
    facts = gathered(tmp_path, roce_node(IPV4), monkeypatch, FlowControl((), by_dscp))

    (found,) = findings(facts)
    assert found == Finding("roce-not-lossless", PF, seen)
    assert found.kind.severity == "note"


def test_driver_without_dcb_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(gathered(tmp_path, roce_node(IPV4), monkeypatch, None)) == ()


def test_gid_that_cannot_be_read_is_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = gathered(tmp_path, roce_node((3, "RoCE v2", "nonsense")), monkeypatch)

    (found,) = findings(facts)
    assert (found.name, found.where) == ("could-not-be-read", VF)
    assert "gids/3: " in found.seen
    assert "nonsense" in found.seen
