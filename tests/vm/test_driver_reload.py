"""The driver of all VFs is loaded again under running pods, one pod for each VF.

With ten cards there are seventy pods: `RAILNET_VM_CARDS=10 RAILNET_VM_VFS=7 scripts/test tests/vm/test_driver_reload.py`.
"""

import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from simnode.waiting import wait_until
from tests.vm.guest import Guest, Pod, left_over, netdevs, vfs

_DRIVER = Path("/sys/bus/pci/drivers/igbvf")
_METRICS = "http://127.0.0.1:9474/metrics"
_SECONDS = 600.0  # an emulated processor is slow


def stages() -> Counter[str]:
    """Count the sandboxes in each state, as `railnet status` shows them."""
    program = [sys.executable, "-m", "railnet", "status", "--json"]
    shown = subprocess.run(program, capture_output=True, text=True, timeout=_SECONDS, check=False).stdout
    return Counter(sandbox["stage"] for sandbox in json.loads(shown)["sandboxes"])


def lost_rails() -> int:
    with urllib.request.urlopen(_METRICS, timeout=_SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith("railnet_lost_rails{"))


def load_again() -> None:
    """Take the driver from every VF, and give it back, as an upgrade of the driver does."""
    functions = vfs()
    for step in ("unbind", "bind"):
        for vf in functions:
            (_DRIVER / step).write_text(f"{vf}\n")


def test_every_pod_is_told_lost_and_every_vf_serves_the_next_pod(
    provisioned: Guest, measured: Callable[[str], None]
) -> None:
    guest, number = provisioned, len(vfs())
    pods = [guest.run(f"train-{each}") for each in range(number)]
    load_again()
    wait_until(lambda: lost_rails() == number, _SECONDS, "every rail to be lost")
    shown = stages()
    plain = guest.run("plain", vfs=0)
    links = set(plain.links())
    for pod in (*pods, plain):
        guest.remove(pod)
    guest.wait_until_healthy()
    on_node, lost = set(netdevs()), lost_rails()  # the kernel has numbered the netdevs anew
    again: list[Pod] = [guest.run(f"again-{each}") for each in range(number)]
    rails = {rail["vf"] for pod in again for rail in pod.rails}
    for pod in again:
        guest.remove(pod)
    measured(f"{number} pods lost their rails, and {number} pods have them again")

    assert shown == {"lost": number}
    assert links == {"lo", "eth0"}
    assert (on_node, lost) == (set(vfs()), 0)
    assert rails == set(vfs())
    assert left_over() == []
