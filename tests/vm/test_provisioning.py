"""The daemon creates VFs with derived MACs and the right driver, and notices their changes."""

import json
import subprocess
import time
from pathlib import Path

from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.pci_address import PciAddress
from tests.vm.guest import DEVICES, PFS, VFS, Guest, driver_of, mac_of, netdevs, vfs

DERIVED = {  # of 52:54:00:00:00:01 and :02
    "0000:01:10.0": "52:54:01:00:00:01",
    "0000:01:10.2": "52:54:02:00:00:01",
    "0000:01:10.4": "52:54:03:00:00:01",
    "0000:02:10.0": "52:54:01:00:00:02",
    "0000:02:10.2": "52:54:02:00:00:02",
    "0000:02:10.4": "52:54:03:00:00:02",
}


def test_every_vf_has_its_mac_and_driver(guest: Guest) -> None:
    assert {vf: mac_of(name) for vf, name in netdevs().items()} == DERIVED
    assert {driver_of(vf) for vf in vfs()} == {"igbvf"}


def test_pf_has_the_macs_and_allows_drivers_for_later_vfs(guest: Guest) -> None:
    macs = [vf["address"] for pf in PFS for vf in link_of(pf)["vfinfo_list"]]

    assert macs == list(DERIVED.values())
    assert {(DEVICES / pf / "sriov_drivers_autoprobe").read_text() for pf in PFS} == {"1\n"}
    assert {(DEVICES / pf / "sriov_numvfs").read_text() for pf in PFS} == {f"{VFS}\n"}


def test_inventory_of_the_real_sysfs_has_two_ethernet_pfs(guest: Guest) -> None:
    pfs = Sysfs(Path("/sys")).inventory().pfs

    assert [(str(pf.address), pf.link_layer, pf.driver, pf.numvfs, pf.numa_node) for pf in pfs] == [
        (address, "Ethernet", "igb", VFS, -1) for address in PFS
    ]


def test_pyudev_reports_that_every_vf_is_added_gets_its_netdev_and_is_bound_once(guest: Guest) -> None:
    for vf, name in guest.first_netdevs.items():
        path = str((DEVICES / vf).resolve()).removeprefix("/sys")
        seen = [guest.uevents.index(event) for event in (("add", path), ("add", f"{path}/net/{name}"), ("bind", path))]
        assert seen == sorted(seen)
        assert guest.uevents.count(("bind", path)) == 1


def test_vf_is_unhealthy_at_once_without_a_driver_and_healthy_with_one(guest: Guest) -> None:
    seconds_to_notice(guest)  # the daemon restarts its timer of ten seconds after each check

    assert any(max(seconds_to_notice(guest)) < 4 for _ in range(3))  # the guest may be stopped for a while


def seconds_to_notice(guest: Guest) -> tuple[float, float]:
    """Unbind and bind a VF. Return the seconds until the daemon noticed each change."""
    sysfs, vf = Sysfs(Path("/sys")), PciAddress.parse(vfs()[0])
    began = time.monotonic()
    sysfs.unbind(vf, "igbvf")
    guest.wait_until_healthy(len(DERIVED) - 1)
    unbound = time.monotonic()
    sysfs.bind(vf, "igbvf")
    guest.wait_until_healthy()
    return unbound - began, time.monotonic() - unbound


def test_restart_of_the_daemon_does_not_change_vfs(guest: Guest) -> None:
    before = {vf: (name, Path(f"/sys/class/net/{name}/ifindex").read_text()) for vf, name in netdevs().items()}
    guest.stop_daemon()
    guest.start_daemon()

    assert before == {vf: (name, Path(f"/sys/class/net/{name}/ifindex").read_text()) for vf, name in netdevs().items()}


def link_of(pf: str) -> dict[str, list[dict[str, str]]]:
    (name,) = (path.name for path in (DEVICES / pf / "net").iterdir())
    shown = subprocess.run(["ip", "-json", "link", "show", name], capture_output=True, check=True).stdout
    (link,) = json.loads(shown)
    return dict(link)
