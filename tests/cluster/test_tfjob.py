"""The article's TFJob, as KubeDL runs it without Railnet: what the tests of training services stand on works together.

kubelet, kube-proxy and the EndpointSlice controller are real; operator, DNS and training program are stand-ins.
"""

from pathlib import Path

import pytest

from tests.cluster.node import ClusterNode
from tests.cluster.trained_tfjob import KILLED, SERVERS, STEPS, WORKERS, port, train
from tests.stand_ins.tfjob_operator import HOST_NETWORK


@pytest.mark.parametrize("annotations", [{}, {HOST_NETWORK: "host"}], ids=["pod network", "host network"])
def test_killed_worker_resumes_and_its_peers_go_on(
    node: ClusterNode, tmp_path: Path, annotations: dict[str, str]
) -> None:
    job = train(node, tmp_path, annotations=annotations, kill=True)

    assert job.made_again() == {KILLED}
    assert all(f"complete at step {STEPS}" in job.logs[name] for name in WORKERS)
    assert "started at step 0" not in job.logs[KILLED]
    assert {job.after[name]["status"]["phase"] for name in SERVERS} == {"Running"}
    assert (port(job.before, KILLED) != port(job.after, KILLED)) == bool(annotations)
