"""Asks the container runtime which pods are on the host's network."""

import os
from collections.abc import Collection
from pathlib import Path

from railnet.configuration import HostConfiguration
from railnet.kernel.files import open_below
from railnet.kubelet import cri

# Kubelet waits 30 s for PreStartContainer (pkg/kubelet/cm/devicemanager/endpoint.go), and calls it again when it starts the container again.
_CRI_SECONDS = 2.0


async def pods_on_host_network(host: HostConfiguration, pod_uids: Collection[str]) -> frozenset[str]:
    """Return which of some pods are on the host's network.

    Raises:
        NotReady: the container runtime does not answer in time.
        OSError: its socket is not there.
    """
    fd = open_below(host.root, str(host.cri), os.O_PATH)
    try:
        return await cri.pods_on_host_network(Path(f"/proc/self/fd/{fd}"), pod_uids, _CRI_SECONDS)
    finally:
        os.close(fd)
