"""What the tests of the gangs' engines share: the webhook with an engine, and the PodGroup of a job."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from railnet.jobs.gang.engine import pod_group_name
from tests.cluster.chart import GANGS
from tests.cluster.manifests import ROOT
from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.cluster import Cluster
from tests.control_plane.gang_cluster import probe
from tests.control_plane.gang_jobs import GangJob
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


def names_group(pod: JsonObject) -> bool:
    return bool(pod["spec"].get("schedulingGroup"))


def pod_group(server: ApiServer, job: GangJob) -> JsonObject | None:
    """Return the PodGroup of a job; None if there is none."""
    path = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{job.namespace}/podgroups/{pod_group_name(job.name)}"
    answer = server.api.get(path)
    return answer.object if answer.status == 200 else None


def key_of(group: JsonObject | None) -> str:
    """Return the label of a PodGroup's topology; empty if it has none."""
    assert group is not None
    topology = group["spec"].get("schedulingConstraints", {}).get("topology", [])
    return topology[0]["key"] if topology else ""


def packing() -> JsonObject:
    """Return the configuration by which the scheduler packs pods of PodGroups, as the page about gangs has it."""
    page = (ROOT / "docs/training/gangs.md").read_text()
    texts = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (configuration,) = (text for text in texts if "KubeSchedulerConfiguration" in text)
    parsed: JsonObject = yaml.safe_load(configuration)
    return parsed
