"""The CronJob of `railnet validate --idle`, with real rights and real preemption: it tries idle nodes, and says of each what it found."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet import VERSION
from railnet.validate.idle.node_verdict import TYPE
from railnet.validate.probe.probe_objects import LABEL
from tests.cluster.ground import NODE
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.process import until_found, wait_until
from tests.cluster.railnet_on_node import IMAGE

NAME = "railnet-validate"
_NEVER = "0 0 31 2 *"  # the tests start runs by hand, as an administrator does
_VALUES = {"validate": {"idle": {"schedule": _NEVER, "image": IMAGE, "rails": 2}}}
_SECONDS = 400.0
_serial = itertools.count(1)
Conditions = dict[str, dict[str, str]]


@pytest.fixture(scope="module", autouse=True)
def nodes(shared_node: ClusterNode) -> Iterator[list[str]]:
    """The names of two nodes with Railnet, and the CronJob beside it; its image is on the first node alone."""
    kubectl = shared_node.kubectl
    objects = [
        one
        for one in shared_node.railnet.objects(_VALUES)
        if one["metadata"].get("labels", {}).get("app.kubernetes.io/name") == NAME
    ]
    (cron_job,) = (one for one in objects if one["kind"] == "CronJob")
    cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    with shared_node.all_nodes():
        shared_node.containerd.load(Path(os.environ["RAILNET_ADMISSION_IMAGE"]))
        kubectl.apply(*objects)
        try:
            yield shared_node.nodes()
        finally:
            kubectl.run("delete", "jobs", "--all", "--namespace=railnet")
            kubectl.delete(*objects)
            shared_node.containerd.forget(f"railnet.io/railnet-admission:{VERSION}")


def start(node: ClusterNode) -> str:
    """Start a run; return the name of its Job."""
    name = f"try-{next(_serial)}"
    node.kubectl.run("create", "job", f"--from=cronjob/{NAME}", name, "--namespace=railnet")
    return name


def complete(node: ClusterNode, name: str) -> str:
    """Wait until a run has ended; return what it said."""
    try:
        how = until_found(lambda: ended(node, name), _SECONDS, f"the end of {name}")
    except TimeoutError as error:
        error.add_note(node.kubectl.run("describe", "jobs,pods", "--namespace=railnet")[-6000:])
        raise
    said = node.kubectl.run("logs", f"job/{name}", "--namespace=railnet")
    assert how == "Complete", said
    return said


def ended(node: ClusterNode, name: str) -> str:
    """Return how a run has ended: `Complete` or `Failed`; empty while it has not."""
    status = node.kubectl.get(f"job/{name}", "--namespace=railnet").get("status", {})
    kinds = [one["type"] for one in status.get("conditions", ()) if one["status"] == "True"]
    return next((kind for kind in ("Complete", "Failed") if kind in kinds), "")


def conditions(node: ClusterNode) -> Conditions:
    """Return what each node says of the last try."""
    return {
        name: one
        for name in node.nodes()
        for one in node.kubectl.get("node", name)["status"]["conditions"]
        if one["type"] == TYPE
    }


def tries(node: ClusterNode) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.kubectl.get("pods", f"--namespace={NAME}", f"--selector={LABEL}")
    return found


def test_node_with_a_cut_rail_says_so_and_is_well_again_after_the_next_run(node: ClusterNode, nodes: list[str]) -> None:
    node.fabrics[1].stop()
    complete(node, start(node))
    cut = conditions(node)
    node.fabrics[1].start()
    complete(node, start(node))
    whole = conditions(node)

    assert {name: one["status"] for name, one in cut.items()} == dict.fromkeys(nodes, "False")
    assert all("rail 1 between " in one["message"] for one in cut.values())
    assert all("no connection, or it was lost" in one["message"] for one in cut.values())
    assert {name: one["reason"] for name, one in whole.items()} == dict.fromkeys(nodes, "NoFindings")
    assert tries(node) == []


def test_node_with_a_job_is_left_alone(node: ClusterNode) -> None:
    before = conditions(node)
    name = node.run("job", vfs=1)
    said = complete(node, start(node))

    assert f"node {NODE} is left alone: pod default/{name} has rdma/ib_vf" in said
    assert "a rail needs two nodes, and 1 can be tried: nothing is tried" in said
    assert conditions(node) == before


def test_job_that_needs_the_vfs_of_a_try_gets_them_and_no_node_has_a_finding(node: ClusterNode) -> None:
    name = start(node)
    wait_until(lambda: any(on(one) == NODE for one in tries(node)), _SECONDS, "a try on the first node")
    job = node.bring(
        "job", vfs=VFS * len(PFS)
    )  # on the first node or on the other one: the try holds two of the VFs of both
    node.wait_until_ready(job)
    complete(node, name)

    assert "False" not in {one["status"] for one in conditions(node).values()}
    assert tries(node) == []


def on(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))
