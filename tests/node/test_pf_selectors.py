"""One node.yaml for unlike nodes: PFs are selected by model, port and NUMA node, and a wrong selector costs its own card."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import Model, SimulatedPf
from simnode.node import RESOURCE, Node
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until

CONNECTX_5 = Model(0x1017, "MT4119")
NEAR = SimulatedPf()
FAR = SimulatedPf(PciAddress(0, 0x83, 0, 0), Guid(0xB8599F0300F98F10), "ibs6", numa_node=1)
OLD_FIRST = SimulatedPf(PciAddress(0, 0x0B, 0, 0), Guid(0xB8599F0300F98F20), "ibs7", model=CONNECTX_5, offset=2)
OLD_SECOND = SimulatedPf(PciAddress(0, 0x0B, 0, 1), Guid(0xB8599F0300F98F30), "ibs8", model=CONNECTX_5, offset=9)
SECONDS = 60.0
# No address of a card: the same file on each node.
ONE_FILE: dict[str, Any] = {
    "rails": {"select": {"vendor": ["15b3"], "function": [0]}},
    "provision": [
        {"select": {"pfDevice": ["1021"], "numaNode": [0]}, "vfs": 2},
        {"select": {"pfDevice": ["1021"], "numaNode": [1]}, "vfs": 3},
        {"select": {"pfDevice": ["1017"], "function": [0]}, "vfs": 4},
    ],
}


@contextmanager
def configured(pfs: tuple[SimulatedPf, ...], keys: dict[str, Any]) -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), pfs, vfs=2) as node:
        CONFIGURATION.write_text(json.dumps(json.loads(CONFIGURATION.read_text()) | keys))
        node.install()
        yield node


def status() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "railnet", "status", "--json"], capture_output=True, check=False)
    told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {"reasons": []}
    return told


def checked() -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "railnet", "config", "check", "--on-node", str(CONFIGURATION)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("pfs", "vfs"),
    [
        ((NEAR, FAR), {"0000:03:00.0": 2, "0000:83:00.0": 3}),
        ((OLD_FIRST, OLD_SECOND), {"0000:0b:00.0": 4}),
        ((FAR, OLD_FIRST), {"0000:0b:00.0": 4, "0000:83:00.0": 3}),
    ],
    ids=["two ConnectX-7", "one ConnectX-5 of two ports", "one of each"],
)
def test_the_same_file_serves_unlike_nodes(pfs: tuple[SimulatedPf, ...], vfs: dict[str, int]) -> None:
    with configured(pfs, ONE_FILE) as node:
        said = checked()
        node.start_daemon(wait=False)
        node.kubelet.wait_for_devices(RESOURCE, sum(vfs.values()), SECONDS)
        told = status()
        pod = node.run_pod("train", vfs=1)
        node.remove_pod(pod)

    assert {rail["address"]: rail["rail"] for rail in told["rails"]} == {at: rail for rail, at in enumerate(vfs)}
    assert len(told["vfs"]) == sum(vfs.values())
    assert told["reasons"] == []
    assert said.returncode == 0, said.stdout
    assert "matches no PF on this node" in said.stdout


def test_card_that_two_entries_match_costs_itself_alone() -> None:
    twice = {"provision": [*ONE_FILE["provision"], {"select": {"numaNode": [1]}, "vfs": 1}]}

    with configured((NEAR, FAR), ONE_FILE | twice) as node:
        said = checked()
        node.start_daemon(wait=False)
        node.kubelet.wait_for_devices(RESOURCE, 2, SECONDS)
        pod = node.run_pod("train", vfs=2)
        node.remove_pod(pod)
        reasons = status()["reasons"]

    words = "PF 0000:83:00.0 is matched by provision[1] and provision[3] in node.yaml"
    assert any(words in reason for reason in reasons), reasons
    assert said.returncode == 3
    assert words in said.stdout


def test_selectors_that_match_no_card_of_the_node_are_said_with_its_cards() -> None:
    wrong = {"provision": [{"select": {"pfDevice": ["101b"]}, "vfs": 2}]}
    words = "no entry of `provision` in node.yaml matches a PF of this node, so no VFs are made: it has 0000:03:00.0 (15b3:1021"

    with configured((NEAR,), wrong) as node:
        said = checked()
        node.start_daemon(wait=False)
        wait_until(lambda: any(words in reason for reason in status()["reasons"]), SECONDS, "the reason", every=0.2)

    assert words in said.stdout
