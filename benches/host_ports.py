"""Measure the webhook beside ten thousand pods in host-network mode: memory, and how long a replica that starts anew refuses.

Run by `scripts/bench host-ports`, inside scripts/with-control-plane: a whole control plane and two replicas of the webhook. The pods are made through
the webhook, so minutes pass until all are there. Fails if two pods have the same port.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benches.gang_scale import Figures, report
from tests.control_plane.host_ports import PORTS, created, given, many_pods, next_port, two_replicas, wait_until_listed
from tests.control_plane.process_use import used
from tests.control_plane.server import ApiServer

PODS = 10_000
AFTER = 20  # ports that the new replica gives, each by a review


def main() -> None:
    """Measure, print, and end with 1 if a port was given twice."""
    parser = argparse.ArgumentParser(prog="scripts/bench host-ports", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--pods", type=int, default=PODS, help=f"pods in host-network mode ({PODS})")
    arguments = parser.parse_args()
    figures: Figures = {}
    with ApiServer() as server, tempfile.TemporaryDirectory() as folder:
        twice = measure(server, Path(folder), arguments.pods, figures)
    report(figures, arguments.json)
    sys.exit(f"pods without a port of their own: {twice}" if twice else None)


def measure(server: ApiServer, files: Path, pods: int, figures: Figures) -> int:
    """Fill in the figures; return how many pods have no port of their own."""
    # Ports of ended pods rest, so there are twice as many as pods.
    ports = range(min(PORTS.start, PORTS.stop - 2 * pods), PORTS.stop)
    with two_replicas(server, files, ports) as cluster:
        began = time.monotonic()
        with many_pods(cluster, pods) as answers:
            figures[f"{pods:,} pods at once: all made, s"] = time.monotonic() - began
            replica = cluster.replicas[0]
            beside = used(replica.program)
            figures["a replica that saw them come: MiB"] = beside.now
            figures["a replica that saw them come: MiB at most"] = beside.most
            replica.stop()
            began = time.monotonic()
            replica.start()
            replica.wait()
            figures["a replica that starts anew: ready, s"] = time.monotonic() - began
            wait_until_listed(replica)
            figures["a replica that starts anew: refuses no longer, s"] = time.monotonic() - began
            listed = used(replica.program)
            figures["a replica that starts anew: MiB at most"] = listed.most
            figures["a replica that starts anew: s of a processor"] = listed.seconds
            named = [*given(filter(created, answers)), *(next_port(replica) for _ in range(AFTER))]
    return pods + AFTER - len(set(named) & set(ports))


if __name__ == "__main__":
    main()
