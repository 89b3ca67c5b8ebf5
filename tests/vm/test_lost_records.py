"""Real VFs of sandboxes without a record: the kernel reports each netdev's PCI device in every namespace."""

import os
import subprocess

from simnode.linux import netns
from simnode.waiting import wait_until
from tests.vm.guest import JOURNAL, Guest, Pod, left_over, netdevs


def stop_daemon_and_lose_record(guest: Guest, pod: Pod) -> None:
    guest.stop_daemon()
    (JOURNAL / f"{pod.sandbox.container_id}@eth0.json").unlink()


def test_pod_keeps_its_vfs_until_del_after_its_record_was_lost(guest: Guest) -> None:
    pod = guest.run("train", vfs=2)
    before = pod.rails
    stop_daemon_and_lose_record(guest, pod)

    guest.start_daemon()
    (path,) = JOURNAL.iterdir()
    after = path.read_text()
    guest.kubelet.pre_start(pod.identity)
    guest.remove(pod)

    assert path.name.startswith("unknown-")
    assert all(rail[key] in after for rail in before for key in ("vf", "host_ifname"))
    assert all(address in after for rail in before for address in rail["addresses"])
    assert left_over() == []


def test_returned_netdevs_without_a_record_get_the_names_in_their_aliases(guest: Guest) -> None:
    before = netdevs()
    pod = guest.run("train", vfs=2)
    stop_daemon_and_lose_record(guest, pod)
    guest.runtime.remove_sandbox(pod.sandbox)
    wait_until(lambda: netdevs().keys() == before.keys(), 60, "the return of the netdevs")
    returned = netdevs()

    guest.start_daemon()

    guest.remove(pod)
    assert returned != before
    assert netdevs() == before


def test_del_finds_a_renamed_and_moved_netdev_by_its_pci_device(guest: Guest) -> None:
    before = netdevs()
    pod = guest.run("train")
    netns.create(netns_path := pod.sandbox.netns.with_name("held"))
    try:
        moved = ["ip", "link", "set", "net1", "alias", "", "netns", "held", "name", "x"]
        subprocess.run(["nsenter", f"--net={pod.sandbox.netns}", *moved], check=True)
        guest.remove(pod)
        after = netdevs()
    finally:
        netns.remove(netns_path)

    assert after == before


def test_vf_without_a_netdev_in_any_namespace_is_bound_again(guest: Guest) -> None:
    before = netdevs()
    (vf, name), *_ = before.items()
    netns.create(path := JOURNAL.with_name("nowhere"))  # outside the folders that Railnet searches
    fd = os.open(path, os.O_RDONLY)
    try:
        guest.stop_daemon()
        subprocess.run(["ip", "link", "set", name, "netns", str(path)], check=True)
        netns.remove(path)
        guest.daemon.start()
        wait_until(lambda: vf in netdevs(), 120, "the return of the netdev")
        guest.wait_until_healthy()
    finally:
        os.close(fd)
        netns.remove(path)

    # udev would name the new netdev, but the guest has no udev.
    subprocess.run(["ip", "link", "set", netdevs()[vf], "down"], check=True)
    subprocess.run(["ip", "link", "set", netdevs()[vf], "name", name], check=True)
    assert f"VF {vf} has no netdev in any namespace" in guest.daemon.log()
