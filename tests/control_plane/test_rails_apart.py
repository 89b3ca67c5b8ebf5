"""A job whose pods do not reach each other is named: by an event of the controllers, and by `railnet train top` to a user of one namespace."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from railnet.apiserver import rail_reach
from railnet.cli.connection import connect
from railnet.fabric.published_reach import NAME, NAMESPACE
from railnet.jobs.rails_apart import REASON
from railnet.objects.network_status import ANNOTATION
from tests.cluster.chart import CONTROLLERS
from tests.cluster.process import wait_until
from tests.control_plane.controllers import NODES, Controllers, Job
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.server import ApiServer

_SECONDS = 120.0
_PUBLISHED = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def controllers(server: ApiServer, tmp_path: Path) -> Iterator[Controllers]:
    with applied(server, CONTROLLERS), some_nodes(server.api, [node(name) for name in NODES]):
        replica = Controllers(server, tmp_path)
        replica.start()
        try:
            replica.wait()
            yield replica
        finally:
            replica.stop()
            server.api.delete(_PUBLISHED)


def publish(server: ApiServer, *, reached: bool) -> None:
    api = connect(os.environ, str(server.api.kubeconfig), None, "railnet validate")
    rail_reach.publish(api, {frozenset({0, 1}): reached}, datetime.now(UTC))


def attach(server: ApiServer, job: Job, number: int, rail: int) -> None:
    networks = [{"name": "railnet/default", "interface": "net1", "ips": [f"10.56.{rail}.{number + 1}"], "rail": rail}]
    patch = {"metadata": {"annotations": {ANNOTATION: json.dumps(networks)}}}
    assert server.api.merge(f"{job.pods}/{job.name}-{number}/status", patch).status == 200


def a_job(server: ApiServer, name: str, *rails: int) -> Job:
    job = Job(server, name)
    for number, rail in enumerate(rails):
        job.add(number, vfs=1)
        attach(server, job, number, rail)
    return job


def user_of(server: ApiServer, namespace: str, folder: Path) -> Path:
    """Return the kubeconfig of an account that may look at one namespace, and has no other right of its own."""
    server.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "user"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subjects = [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}]
    binding = {"metadata": {"name": "user"}, "roleRef": role, "subjects": subjects}
    assert server.api.create(f"{_RBAC}/namespaces/{namespace}/rolebindings", binding).status == 201
    config = json.loads(server.api.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": server.token(namespace, "user")}
    path = folder / "user.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def top(kubeconfig: Path, namespace: str) -> str:
    command = [
        sys.executable,
        "-m",
        "railnet",
        "train",
        "top",
        f"--namespace={namespace}",
        f"--kubeconfig={kubeconfig}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_job_on_rails_that_do_not_reach_each_other_is_named_and_the_others_are_not(
    server: ApiServer, controllers: Controllers, tmp_path: Path
) -> None:
    publish(server, reached=True)  # and then otherwise: what is published is replaced
    publish(server, reached=False)
    apart, like = a_job(server, "apart", 0, 1, 1), a_job(server, "like", 1, 1)
    wait_until(lambda: ("Job", REASON) in apart.events(), _SECONDS, "an event on the job")

    assert apart.events() == [("Job", REASON)]
    assert like.events() == []
    shown = top(user_of(server, "apart", tmp_path), "apart")
    assert "apart/apart: pods apart-0 (rail 0) and apart-1 (rail 1) do not reach each other over net1" in shown
    assert controllers.requests("get")["get configmaps"] >= 1
    assert controllers.requests(result="failed") == {}


def test_job_on_rails_that_reach_each_other_is_named_by_nothing(
    server: ApiServer, controllers: Controllers, tmp_path: Path
) -> None:
    publish(server, reached=True)
    job = a_job(server, "joined", 0, 1)
    wait_until(lambda: "get configmaps" in controllers.requests("get"), _SECONDS, "the controllers to look")

    assert "reach" not in top(user_of(server, "joined", tmp_path), "joined")
    assert job.events() == []


def test_user_may_not_write_what_is_published(server: ApiServer, controllers: Controllers) -> None:
    publish(server, reached=True)
    token = server.token(NAMESPACE, "default")

    assert server.api.get(_PUBLISHED, token).status == 200
    assert server.api.merge(_PUBLISHED, {"data": {}}, token).status == 403
    assert server.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps", token).status == 403
