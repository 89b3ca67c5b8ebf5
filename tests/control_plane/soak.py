"""The soak of the services: well-behaved tenants alone, then beside hostile ones, under the same faults. `scripts/soak` runs it.

`soak_schedule` decides what happens, `soak_hostility` and `soak_faults` do it, `soak_jobs` has the well-behaved tenants, `soak_judgement` judges.
The control plane, the webhook and the controllers are real. The nodes are kwok's: no pod's program runs, and no daemon. `--real-node` adds a
real one with well-behaved jobs of its own, and faults of its programs.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address, ip_network
from itertools import count
from pathlib import Path
from typing import NamedTuple

from railnet.jobs.railnet_labels import NAMES
from simnode.chaos import soak_schedule
from simnode.chaos.soak_judgement import JobLife, Soaked, rendered, summary
from tests.cluster.chart import ENABLED, GANGS
from tests.cluster.process import wait_until
from tests.control_plane import soak_node, soak_node_jobs
from tests.control_plane.api import Api, JsonObject
from tests.control_plane.cluster import Cluster
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import leaf
from tests.control_plane.hostile_crowd import beside_crowd
from tests.control_plane.nodes import some_nodes
from tests.control_plane.proxy import ApiProxy
from tests.control_plane.server import ApiServer
from tests.control_plane.soak_faults import Faults
from tests.control_plane.soak_hostility import PORTS, HostileTenant
from tests.control_plane.soak_jobs import NETWORK, STICKY_NETWORK, tenants
from tests.control_plane.soak_node import RealNode

MINUTES = 30.0
_ALONE = 0.25  # of the time
_HOSTILE = ("hostile-0", "hostile-1")
_PAUSE_SECONDS = 1.0  # of a hostile tenant: what a few programs of one machine do is not what is tried
_SECONDS = 120.0
_RANGE = "10.58.0.0/25"
_PERMITTED = (
    ip_network("10.56.0.0/16"),
    ip_network(_RANGE),
)  # of the network `default`, whose range is not configured, and of the other one
_CONFIGURATION: JsonObject = {
    "networks": {STICKY_NETWORK: {"ipam": {"type": "sticky", "range": _RANGE}}},
    "limits": {"*": {"networks": [NETWORK, STICKY_NETWORK]}},
}
_VALUES = {
    **GANGS,
    "webhook": {**ENABLED, "hostNetwork": ENABLED},
    "controllers": {**ENABLED, "stickyAddresses": {**ENABLED, "network": STICKY_NETWORK, "range": _RANGE}},
    "node": {"configuration": soak_node.CONFIGURATION},  # of the real node: no other one has a daemon
}
_OPTIONS = ("--gangs", f"--host-ports={PORTS[0]}-{PORTS[-1]}")
_LEAVES, _LEAF_NODES, _VFS = 5, 3, 8


class Services(NamedTuple):
    """What is soaked: two replicas of the webhook, a leader behind a proxy, and perhaps a real node."""

    webhook: Cluster
    leader: Controllers
    proxy: ApiProxy
    node: RealNode | None


@contextmanager
def services(server: ApiServer, files: Path, *, real_node: bool = False) -> Iterator[Services]:
    """Have all services, which are ready, and nodes."""
    nodes = [node for number in range(_LEAVES) for node in leaf(f"leaf-{number}", _LEAF_NODES, _VFS)]
    with ExitStack() as ending:
        ending.enter_context(some_nodes(server.api, nodes))
        webhook = ending.enter_context(Cluster(server, _VALUES, files, 2, _OPTIONS))
        webhook.configure(_CONFIGURATION)
        for replica in webhook.replicas:
            metadata = {"name": replica.pod, "labels": {"app.kubernetes.io/name": "railnet-admission"}}
            pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
            server.api.create("/api/v1/namespaces/railnet/pods", pod)
            ending.callback(server.api.delete, f"/api/v1/namespaces/railnet/pods/{replica.pod}?gracePeriodSeconds=0")
        proxy = ending.enter_context(ApiProxy(server.api.another()))
        leader = Controllers(server, files, _CONFIGURATION, ["--gangs"])
        ending.callback(leader.stop)
        leader.start(proxy, hasty=False)
        leader.wait()
        node = ending.enter_context(RealNode(server)) if real_node else None
        if node is not None:
            node.join(_VALUES)
        yield Services(webhook, leader, proxy, node)


def soak(server: ApiServer, files: Path, seed: int, minutes: float, *, real_node: bool = False) -> Soaked:
    """Soak, and return what was observed."""
    soaked = Soaked(seed)
    with services(server, files, real_node=real_node) as soaking:
        plane = server.plane
        programs = {
            **{f"webhook {number}": replica.program for number, replica in enumerate(soaking.webhook.replicas)},
            "API server": plane.apiserver,
            "etcd": plane.etcd,
            "scheduler": plane.scheduler,
            "controller manager": plane.controllers,
        }
        good, hostile = tenants(server), [HostileTenant(server, namespace) for namespace in _HOSTILE]
        good += soak_node_jobs.tenants(server) if real_node else []
        faults = Faults(soaking.leader, soaking.proxy, programs, soaked, soaking.node)
        ended, beside = threading.Event(), threading.Event()
        take: Callable[[JobLife], None] = soaked.lives.append
        runs = [
            faults.run,
            lambda ended: _hostilities(hostile, soaked, ended, beside, real_node=real_node),
            lambda ended: _addresses(server.api.another(), soaked, ended),
            *(lambda ended, tenant=tenant: tenant.run(ended, beside, take) for tenant in good),
        ]
        _together(runs, ended, beside, 60 * minutes, soaked)
        _services_without_ports(server.api, soaked)
        if soaking.node is not None:
            soaked.violations += [f"left on the real node: {what}" for what in soaking.node.left_over()]
    for namespace in (*(tenant.namespace for tenant in good), *_HOSTILE):
        server.api.delete(f"/api/v1/namespaces/{namespace}")
    return soaked


def _together(
    runs: Iterable[Callable[[threading.Event], None]],
    ended: threading.Event,
    beside: threading.Event,
    seconds: float,
    soaked: Soaked,
) -> None:
    """Run all in threads until the time is over. One that fails is a violation."""

    def run(one: Callable[[threading.Event], None]) -> None:
        try:
            one(ended)
        except Exception as error:  # noqa: BLE001 - reported with the seed
            soaked.violations.append(f"the soak itself failed: {error!r}")

    threads = [threading.Thread(target=run, args=(one,)) for one in runs]
    for thread in threads:
        thread.start()
    try:
        _pass(_ALONE * seconds, soaked, "alone")
        beside.set()
        _pass((1 - _ALONE) * seconds, soaked, "beside hostile tenants")
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _pass(seconds: float, soaked: Soaked, how: str) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 30.0))
        sys.stderr.write(f"  {how}: {len(soaked.lives)} jobs, {soaked.operations.total()} operations …\n")
        sys.stderr.flush()


def _hostilities(
    hostile: list[HostileTenant], soaked: Soaked, ended: threading.Event, beside: threading.Event, *, real_node: bool
) -> None:
    """Have the hostile tenants act one after the other, until `ended` is set."""
    while not beside.wait(_PAUSE_SECONDS):
        if ended.is_set():
            return
    for number in count():
        step = soak_schedule.step(soaked.seed, number, len(hostile), real_node=real_node)
        hostile[step.tenant].act(step.kind)
        soaked.operations[step.kind] += 1
        if ended.wait(_PAUSE_SECONDS):
            break
    for tenant in hostile:
        tenant.sweep()
        tenant.api.close()


def _addresses(api: Api, soaked: Soaked, ended: threading.Event) -> None:
    """Look at all slices of the names: each address must be of a network."""
    while not ended.wait(5.0):
        for found in api.items(f"/apis/discovery.k8s.io/v1/endpointslices?labelSelector={NAMES}"):
            for address in (address for end in found["endpoints"] or () for address in end["addresses"]):
                if not any(ip_address(address) in permitted for permitted in _PERMITTED):
                    soaked.violations.append(
                        f"{found['metadata']['namespace']}/{found['metadata']['name']} has {address}"
                    )
    api.close()


def _services_without_ports(api: Api, soaked: Soaked) -> None:
    """Wait until no Service of names has what a tenant has written into it."""

    def edited() -> list[str]:
        items = api.items(f"/api/v1/services?labelSelector={NAMES}")
        return [item["metadata"]["name"] for item in items if {"ports", "externalIPs"} & item["spec"].keys()]

    try:
        wait_until(lambda: not edited(), _SECONDS, "the Services to be as they were")
    except TimeoutError:
        soaked.violations.append(f"Services of names have ports or addresses of tenants: {', '.join(edited())}")


def main(arguments: list[str]) -> int:
    """Soak and print the table; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"how long; a quarter is without hostile tenants ({MINUTES:g})"
    )
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"), help="the schedule (random)")
    parser.add_argument(
        "--crowd",
        type=int,
        default=0,
        help="in place of all that: so many pods of one tenant, as costly as they can be",
    )
    parser.add_argument(
        "--real-node", action="store_true", help="a real node beside those of kwok, with jobs and faults"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    asked = parser.parse_args(arguments)
    with ApiServer() as server, tempfile.TemporaryDirectory() as folder:
        if asked.crowd:
            found = beside_crowd(server, Path(folder), asked.crowd)
            sys.stdout.write(f"{found}\n")
            return 1 if found.missed() else 0
        sys.stderr.write(f"  seed {asked.seed} …\n")
        figures = summary(soak(server, Path(folder), asked.seed, asked.minutes, real_node=asked.real_node))
    sys.stdout.write((json.dumps(figures, indent=2) if asked.json else "\n".join(rendered(figures))) + "\n")
    return 1 if figures["violations"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
