"""What the tests of the gangs' engines share: the webhook with an engine, and a leader."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.chart import GANGS
from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.cluster import Cluster
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import probe
from tests.control_plane.server import ApiServer

SECONDS = 120.0


@contextmanager
def webhook(server: ApiServer, files: Path, engine: str = "auto") -> Iterator[Cluster]:
    """Have reviews of gangs, with an engine."""
    options = ["--gangs", f"--gang-engine={engine}"]
    with Cluster(server, {**GANGS, "gangs": {"enabled": True, "engine": engine}}, files, options=options) as found:
        server.namespace("gang-probe")
        yield found


@contextmanager
def grouping(server: ApiServer, files: Path) -> Iterator[Cluster]:
    """Have the webhook name a PodGroup in gangs' pods, on an API server that serves PodGroups."""
    with webhook(server, files) as reviews:
        wait_until(lambda: names_group(probe(server.api).object), SECONDS, "pods of gangs to name a PodGroup")
        yield reviews


@contextmanager
def controllers(server: ApiServer, files: Path) -> Iterator[Controllers]:
    found = Controllers(server, files, options=["--gangs"])
    found.start()
    try:
        found.wait()
        yield found
    finally:
        found.stop()


def names_group(pod: JsonObject) -> bool:
    return bool(pod["spec"].get("schedulingGroup"))
