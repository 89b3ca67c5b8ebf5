"""The article's TFJob, as KubeDL runs it without Railnet: what the tests of training services stand on works together.

kubelet, kube-proxy and the EndpointSlice controller are real; operator, DNS and training program are stand-ins.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.node import ClusterNode
from tests.cluster.process import wait_until
from tests.cluster.tfjob import TfJob, articles_job
from tests.stand_ins.tfjob_operator import HOST_NETWORK
from tests.stand_ins.toy_trainer import Checkpoint

_STEPS = 30
_WORKERS = [f"mnist-worker-{index}" for index in range(3)]
_SECONDS = 120.0


@pytest.mark.parametrize("annotations", [{}, {HOST_NETWORK: "host"}], ids=["pod network", "host network"])
def test_killed_worker_resumes_and_its_peers_go_on(
    node: ClusterNode, tmp_path: Path, annotations: dict[str, str]
) -> None:
    checkpoint, hold = Checkpoint(tmp_path, "worker-1"), tmp_path / "hold"
    hold.touch()
    described = articles_job(tmp_path, f"--steps={_STEPS}", "--hold=/train/hold", annotations=annotations)
    with TfJob(node.kubectl, described) as job:
        wait_until(lambda: checkpoint.read() > 3, _SECONDS, "steps of worker-1")
        wait_until(lambda: "reached worker-1" in job.log(_WORKERS[0]), _SECONDS, "worker-0 to have reached worker-1")
        before, reached = job.pods(), job.log(_WORKERS[0]).count("reached worker-1")
        node.containerd.kill_container(_WORKERS[1])
        wait_until(lambda: "resumed at step" in job.log(_WORKERS[1]), _SECONDS, "worker-1 to resume")
        wait_until(
            lambda: job.log(_WORKERS[0]).count("reached worker-1") > reached,
            _SECONDS,
            "worker-0 to reach worker-1 again",
        )
        hold.unlink()
        wait_until(
            lambda: all(phase(job, name) == "Succeeded" for name in _WORKERS), _SECONDS, "the workers to complete"
        )
        after = job.pods()
        logs = {name: job.log(name) for name in _WORKERS}

    again = {name for name in before if uid(before, name) != uid(after, name)}
    assert again == {_WORKERS[1]}
    assert all(f"complete at step {_STEPS}" in log for log in logs.values())
    assert "started at step 0" not in logs[_WORKERS[1]]
    assert {after[name]["status"]["phase"] for name in ("mnist-ps-0", "mnist-ps-1")} == {"Running"}
    assert (port(before, _WORKERS[1]) != port(after, _WORKERS[1])) == bool(annotations)


def phase(job: TfJob, name: str) -> str:
    found = job.pods().get(name, {"status": {}})
    return str(found["status"].get("phase"))


def uid(pods: dict[str, dict[str, Any]], name: str) -> Any:
    return pods[name]["metadata"]["uid"] if name in pods else None


def port(pods: dict[str, dict[str, Any]], name: str) -> Any:
    return pods[name]["spec"]["containers"][0]["ports"][0]["containerPort"]
