"""The question of `railnet.kernel.umad`, asked on the hosts of a simulated fabric; the switches are ibsim's, and the subnet manager is OpenSM."""

import errno
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.railnet.kernel.umad.fabric import FABRIC, SMPQUERY, Fabric, require_fabric

pytestmark = pytest.mark.slow
ASKING = (sys.executable, "-m", "tests.railnet.kernel.umad.asking", "30")
LEAF_1, LEAF_2 = 0x2C9030000A001, 0x2C9030000B001
TRANSACTION = slice(8, 16)


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    require_fabric()
    with Fabric(tmp_path) as found:
        yield found


def asked(fabric: Fabric, host: str) -> object:
    return json.loads(fabric.run(host, *ASKING))


@pytest.mark.parametrize(
    ("host", "leaf", "port"), [("H-node1", LEAF_1, 3), ("H-node2", LEAF_1, 4), ("H-node3", LEAF_2, 5)]
)
def test_host_learns_its_leaf_switch_and_the_port_there(fabric: Fabric, host: str, leaf: int, port: int) -> None:
    assert asked(fabric, host) == ["switch", leaf, port]


def test_answer_is_what_smpquery_prints(fabric: Fabric) -> None:
    printed = dict(re.findall(r"(\w+):\.*(\w.*)", fabric.run("H-node3", *SMPQUERY)))

    assert asked(fabric, "H-node3") == [
        printed["NodeType"].lower(),
        int(printed["Guid"], 16),
        int(printed["LocalPort"]),
    ]


def test_question_is_the_one_that_smpquery_sends_byte_by_byte(fabric: Fabric) -> None:
    ours, theirs = (fabric.sent("H-node1", *command) for command in (ASKING, SMPQUERY))

    assert len(ours) == 1
    assert without_transaction(ours[0]) in [without_transaction(smp) for smp in theirs]


def without_transaction(smp: bytes) -> bytes:
    return smp[: TRANSACTION.start] + bytes(8) + smp[TRANSACTION.stop :]


def test_subnet_manager_changes_nothing_of_the_answer(fabric: Fabric, tmp_path: Path) -> None:
    before = asked(fabric, "H-node1")
    fabric.run("H-node2", FABRIC / "usr/sbin/opensm", "--once", "--log_file", tmp_path / "opensm.log")

    assert "SUBNET UP" in (tmp_path / "opensm.log").read_text()
    assert asked(fabric, "H-node1") == before == ["switch", LEAF_1, 3]


def test_card_at_the_other_end_is_no_switch(fabric: Fabric) -> None:
    assert asked(fabric, "H-apart1") == ["CA", 0xB83FD20300050000, 1]


def test_port_without_a_cable_gives_no_answer(fabric: Fabric) -> None:
    assert json.loads(fabric.run("H-loose", *ASKING[:-1], "0.5")) == errno.ETIMEDOUT
