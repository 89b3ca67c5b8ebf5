"""The RoCE facts for `railnet status`: in time, also when a card does not answer."""

import asyncio
import os
from pathlib import Path

import pytest

from railnet.daemon import roce_facts_for_status
from railnet.daemon.roce_facts_for_status import RoceStatus
from railnet.kernel.netlink import dcb
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable
from tests.railnet.kernel.roce_node import PF, VF, roce_node
from tests.railnet.kernel.tree import Tree


def test_answer_comes_in_time_and_the_next_one_has_what_could_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roce_facts_for_status, "_SECONDS", 0.2)
    monkeypatch.setattr(dcb, "flow_control", lambda _: None)
    Tree(tmp_path).write(roce_node())
    (hung,) = (tmp_path / "devices").rglob(f"{VF}/infiniband/*/ports/1/gid_attrs/types/0")
    text = hung.read_text()
    sysfs = Sysfs(tmp_path)
    status = RoceStatus(VfTable(sysfs.inventory()), sysfs)
    hung.unlink()
    os.mkfifo(hung)

    async def ask_twice() -> None:
        first = await status.facts()
        assert (set(first.ports), set(first.unread)) == (set(), {PciAddress.parse(PF)})
        with hung.open("w") as pipe:
            pipe.write(text)
        second = await status.facts()
        assert (set(second.ports), second.unread) == ({PciAddress.parse(PF), PciAddress.parse(VF)}, {})

    asyncio.run(ask_twice())
