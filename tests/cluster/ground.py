"""What the node's programs stand on, inside `simnode exec --cgroups`: addresses, folders, devices, kernel settings."""

import os
import stat
import subprocess
from pathlib import Path

from simnode import preinstalled_files
from simnode.linux import empty_folders, libc, namespaces

RUN = Path("/run/cluster")
NODE_ADDRESS = "10.4.52.5"  # kubelet refuses a loopback address, wherever it is
POD_SUBNET = preinstalled_files.FlannelLease().subnet.network
SERVICES = "10.96.0.0/16"
DNS_ADDRESS = "10.96.0.10"  # as kubeadm chooses it in this range
_UPLINK = "uplink"
_FOLDERS = (Path("/var/log/pods"), Path("/var/log/containers"), Path("/usr/libexec/kubernetes"))
# include/uapi/linux/major.h, drivers/char/mem.c: kubelet's watcher for processes killed for memory reads it
_KMSG = (1, 11)
# What kubelet wants of the machine (pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables): it finds it so,
# and writes nothing.
_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def prepare() -> None:
    """Make all of it; nothing is undone, since it ends with the namespaces."""
    if not namespaces.inside() or not Path("/sys/fs/cgroup").is_dir():
        raise RuntimeError("a node writes to /etc, /run and /var: start this by scripts/cluster")
    for folder in _FOLDERS:
        empty_folders.mount_empty(folder)
    os.mknod("/dev/kmsg", stat.S_IFCHR | 0o400, os.makedev(*_KMSG))
    for name, value in _SETTINGS.items():
        shown = RUN / "sys" / name
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(f"{value}\n")
        libc.mount(str(shown), f"/proc/sys/{name}", flags=libc.MS_BIND)
    _ip("address", "add", f"{NODE_ADDRESS}/32", "dev", "lo")
    # kube-proxy's rules change the destination of the node's own packets only after the kernel has found a route to it. A real
    # node has its default route for that. Here nothing is behind the link: a bridge without a port, as a kernel may lack `dummy`.
    _ip("link", "add", _UPLINK, "type", "bridge")
    _ip("link", "set", _UPLINK, "up")
    _ip("route", "add", SERVICES, "dev", _UPLINK, "src", NODE_ADDRESS)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
