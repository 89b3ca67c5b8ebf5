"""Gathers where kubelet's folders are looked for, where the running kubelet has its own, and which are missing."""

import os
from pathlib import Path

from railnet.configuration import HostConfiguration
from railnet.daemon.kubelet_folder import find, may_have_kubelet, running_kubelet
from railnet.doctor.facts import KubeletFolders
from railnet.kernel.files import open_below
from railnet.kubelet.root_folder import REGISTRY


def read(host: HostConfiguration, proc: Path) -> KubeletFolders:
    """Look for kubelet's folders as the daemon does."""
    looked_for, running = find(host, proc), running_kubelet(host.root, proc)
    # The daemon's container has the second folder mounted, and the first one in the host's root alone.
    registry = f"{looked_for.path}/{REGISTRY}"
    refused = {
        f"{registry} ({looked_for.source})": _refusal(host.root, registry),
        f"{host.device_plugins} (host.devicePlugins)": _refusal(Path("/"), str(host.device_plugins)),
    }
    missing = [
        f"{folder}: {error.strerror}" for folder, error in refused.items() if isinstance(error, FileNotFoundError)
    ]
    is_there = None in refused.values() or may_have_kubelet(host.root, proc)
    return KubeletFolders(looked_for, running, tuple(missing), is_there)


def _refusal(root: Path, folder: str) -> OSError | None:
    """Return why a folder cannot be opened; None if it can."""
    try:
        os.close(open_below(root, folder, os.O_PATH | os.O_DIRECTORY))
    except OSError as error:
        return error
    return None
