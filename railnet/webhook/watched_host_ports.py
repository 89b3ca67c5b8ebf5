"""The host ports that the webhook may give, kept up to date by a watch of the cluster's pods."""

import asyncio
import os
import threading
import time
from functools import partial

from railnet.admission.certificates.cluster_objects import NAME
from railnet.admission.host_network.host_port_allocator import HostPorts, port_range
from railnet.admission.host_network.host_port_usage import SeenPod, seen_pod
from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.request import Collection
from railnet.controllers.informer import Informer

_POD_NAME = "POD_NAME"  # the chart sets it: by its name a replica finds its own pod among those that share the range


def watch(host_ports: str, api: StreamingApiServer, namespace: str) -> HostPorts:
    """Begin to watch the pods, in a thread that ends with the process, and return the ports of a range that they leave free.

    Until the pods are listed, pods in host-network mode are refused, and all others are served. `namespace` is the webhook's own.

    Raises:
        Misconfigured: `host_ports` is no range.
    """
    loop = asyncio.get_running_loop()
    ports = HostPorts(port_range(host_ports), os.environ.get(_POD_NAME, ""), time.monotonic)

    def changed(before: SeenPod | None, after: SeenPod | None) -> None:
        loop.call_soon_threadsafe(ports.changed, before, after)

    def listed() -> None:
        loop.call_soon_threadsafe(ports.listed)

    keep = partial(seen_pod, webhook=(namespace, NAME))
    informer = Informer(api, Collection("v1", "pods"), keep, changed, listed)
    threading.Thread(target=informer.run, args=(threading.Event(),), name="watch of pods", daemon=True).start()
    return ports
