"""What is sent equals what `ip link set … vf …` sends, byte for byte. strace sees both; the link refuses both."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

_LO = 1  # its ifindex in every namespace
_SEQUENCE = slice(8, 12)  # in struct nlmsghdr; `ip` takes the time of day
_NEWLINK = b"\x10\x00"
GUID, MAC = "ba:59:9f:03:01:f9:8f:86", "ba:59:9e:f9:8f:86"

CASES = {
    "MAC": (["mac", MAC], f"set_mac({_LO}, 3, Mac.parse({MAC!r}))"),
    "GUIDs": (
        ["node_guid", GUID, "port_guid", GUID, "state", "auto"],
        f"set_guids({_LO}, 3, Guid.parse({GUID!r}))",
    ),
}
# pyroute2 remembers how it wrote such a message before, in its own classes; ours must not be among them.
_OURS = """
from contextlib import suppress
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
guid = ("IFLA_VF_IB_NODE_GUID", {{"vf": 3, "ib_node_guid": "00:00:00:00:00:00:00:01"}})
before = ifinfmsg()
before["attrs"] = [("IFLA_VFINFO_LIST", {{"attrs": [("IFLA_VF_INFO", {{"attrs": [guid]}})]}})]
before.encode()
from railnet.kernel.netlink.vf_configuration import set_guids, set_mac
from railnet.vf.guid import Guid
from railnet.vf.mac import Mac
with suppress(OSError):
    {}
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_message_equals_that_of_ip(case: str, tmp_path: Path) -> None:
    words, call = CASES[case]
    ips = sent(["ip", "link", "set", "dev", "lo", "vf", "3", *words], tmp_path / "ip")
    ours = sent([sys.executable, "-c", _OURS.format(call)], tmp_path / "ours")

    assert len(ips) == 1
    assert ours == ips


def sent(command: list[str], trace: Path) -> list[bytes]:
    """Run a command and give the RTM_NEWLINK messages about VFs that it sent, without their sequence numbers."""
    options = ["--follow-forks", "--trace=sendmsg,sendto", "--write=all", f"--output={trace}"]
    subprocess.run(["strace", *options, *command], check=False, capture_output=True, timeout=60)
    messages: list[bytes] = []
    for line in trace.read_text().splitlines():
        if (dump := re.match(r" \| ([0-9a-f]{5})  ((?:[0-9a-f]{2} ?| )+)", line)) is None:
            continue
        if int(dump[1], 16) == 0:
            messages.append(b"")
        messages[-1] += bytes.fromhex(dump[2])
    # `ip` first asks with an empty RTM_NEWLINK whether the kernel checks strictly.
    return [without_sequence(message) for message in messages if message[4:6] == _NEWLINK and len(message) > 32]


def without_sequence(message: bytes) -> bytes:
    cleared = bytearray(message)
    cleared[_SEQUENCE] = bytes(4)
    return bytes(cleared)
