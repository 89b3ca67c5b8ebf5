"""`railnet uninstall --cluster` with its documented rights: the API server takes its patches, and the DaemonSet's status ends its wait.

The nodes have no kubelets: the test does for the pods what kubelets do.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.manifests import NAMESPACE
from tests.cluster.process import wait_until
from tests.control_plane.account import Account
from tests.control_plane.api import JsonObject
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes, without_kubelets
from tests.control_plane.server import ApiServer

_NAME = "railnet-uninstall"
_SECONDS = 60.0
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_DAEMON_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/railnet"
_WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_RULES = [
    {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get", "list", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
]
_GANG_RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch"]},
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations"],
        "resourceNames": ["railnet-admission"],
        "verbs": ["get", "delete"],
    },
]


def rights() -> list[JsonObject]:
    """Return the account, and what railnet/cluster_uninstall/program.py says that it needs."""
    objects: list[JsonObject] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(namespaced=True)}]
    for prefix, rules in (("", _RULES), ("Cluster", _GANG_RULES)):
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata(namespaced=not prefix)}
        subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": NAMESPACE}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{prefix}Role", "name": _NAME}
        objects.append({**role, "kind": f"{prefix}Role", "rules": rules})
        objects.append({**role, "kind": f"{prefix}RoleBinding", "roleRef": reference, "subjects": [subject]})
    return objects


def metadata(*, namespaced: bool) -> JsonObject:
    return {"name": _NAME, **({"namespace": NAMESPACE} if namespaced else {})}


@pytest.fixture(scope="module")
def account(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": rights()})
    done = server.kubectl("apply", "--filename=-", "--validate=strict", stdin=text)
    assert done.returncode == 0, done.stderr
    found = Account(server, tmp_path_factory.mktemp("uninstall") / "account", _NAME)
    found.write()
    yield found
    server.kubectl("delete", "--filename=-", stdin=text)


@contextmanager
def command(account: Account, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Have the command as a process, which the end of the block ends."""
    arguments = ["uninstall", "--cluster", f"--service-account={account.folder}", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "railnet", *arguments],
        env=account.environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Kubelets:
    """What the kubelets of the nodes do with Railnet's pods."""

    def __init__(self, server: ApiServer) -> None:
        self._api = server.api

    def pods(self, *, uninstalling: bool) -> dict[str, str]:
        """Return the pods by their nodes, which were made in the uninstall mode or before."""
        arguments = ["uninstall", "--stay"] if uninstalling else ["node"]
        return {
            pod["spec"]["nodeName"]: pod["metadata"]["name"]
            for pod in self._api.items(_PODS)
            if pod["spec"].get("nodeName") and pod["spec"]["containers"][0]["args"] == arguments
        }

    def end_old(self) -> None:
        for name in self.pods(uninstalling=False).values():
            if "deletionTimestamp" in self._api.get(f"{_PODS}/{name}").object["metadata"]:
                self._api.delete(f"{_PODS}/{name}?gracePeriodSeconds=0")

    def run(self, name: str, *, ready: bool) -> None:
        """Say that a pod's container runs."""
        container = {
            "name": "railnet",
            "image": "railnet",
            "imageID": "",
            "restartCount": 0,
            "ready": ready,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
        status = {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [container],
        }
        done = self._api.send(
            "PATCH", f"{_PODS}/{name}/status", {"status": status}, content_type="application/strategic-merge-patch+json"
        )
        assert done.status == 200, done.message


def test_wait_ends_when_each_node_has_a_ready_pod_in_the_uninstall_mode(server: ApiServer, account: Account) -> None:
    kubelets = Kubelets(server)
    nodes = without_kubelets([node("node-a"), node("node-b")])

    def replaced() -> bool:
        kubelets.end_old()
        return len(kubelets.pods(uninstalling=True)) == len(nodes)

    with some_nodes(server.api, nodes), applied(server, {}, daemons=True):
        wait_until(lambda: len(kubelets.pods(uninstalling=False)) == len(nodes), _SECONDS, "the daemons' pods")
        with command(account, "--timeout=120") as process:
            wait_until(replaced, _SECONDS, "pods in the uninstall mode")
            names = kubelets.pods(uninstalling=True)
            kubelets.run(names["node-a"], ready=True)
            kubelets.run(names["node-b"], ready=False)
            assert process.stderr is not None
            line = next(line for line in process.stderr if "Waiting for pods with rails" in line)
            assert process.poll() is None
            kubelets.run(names["node-b"], ready=True)
            out, _ = process.communicate(timeout=_SECONDS)
        daemon_set = server.api.get(_DAEMON_SET).object

    assert line.startswith(f"railnet: 1 of 2 nodes are done. Waiting for pods with rails: node-b ({names['node-b']});")
    assert (process.returncode, out) == (0, "the runtime is given back to its primary network on all nodes (2)\n")
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "100%", "maxSurge": 0}
    assert "initContainers" not in daemon_set["spec"]["template"]["spec"]


def test_end_of_the_time_names_the_nodes_and_a_second_run_changes_nothing(server: ApiServer, account: Account) -> None:
    kubelets = Kubelets(server)
    with some_nodes(server.api, without_kubelets([node("node-a")])), applied(server, {}, daemons=True):
        wait_until(lambda: kubelets.pods(uninstalling=False), _SECONDS, "the daemon's pod")
        errors, generations = [], []
        for _ in range(2):
            with command(account, "--timeout=5") as process:
                _, error = process.communicate(timeout=_SECONDS)
            errors.append((process.returncode, error.splitlines()[-1]))
            generations.append(server.api.get(_DAEMON_SET).object["metadata"]["generation"])

    assert [status for status, _ in errors] == [1, 1]
    assert all(error.startswith("railnet: not done in 5 s: 0 of 1 nodes are done.") for _, error in errors)
    assert all("node-a" in error for _, error in errors)
    assert generations == [2, 2]


def test_account_without_rights_is_told_so(server: ApiServer, tmp_path: Path) -> None:
    default = Account(server, tmp_path / "account", "default")
    default.write()
    with command(default) as process:
        _, error = process.communicate(timeout=_SECONDS)

    assert process.returncode == 1
    assert "lacks the right 'list' on daemonsets in namespace railnet" in error


def test_pods_that_wait_for_their_gang_are_let_go_and_the_webhook_is_deleted(
    server: ApiServer, account: Account
) -> None:
    server.namespace("ring")
    gates = [{"name": "kueue.x-k8s.io/topology"}, {"name": "railnet.io/gang"}]
    spec = {"containers": [{"name": "train", "image": "train:1"}], "schedulingGates": gates}
    for path, body in (
        ("/api/v1/namespaces/ring/pods", {"metadata": {"name": "w-0"}, "spec": spec}),
        (_WEBHOOK, {"metadata": {"name": "railnet-admission"}}),
    ):
        assert server.api.create(path, body).status == 201
    try:
        with command(account, "--gangs") as process:
            out, error = process.communicate(timeout=_SECONDS)
        pod = server.api.get("/api/v1/namespaces/ring/pods/w-0").object
    finally:
        server.api.delete("/api/v1/namespaces/ring/pods/w-0")

    assert (process.returncode, error.splitlines()) == (
        0,
        [
            "railnet: the webhook configuration is deleted: new training pods get no rail",
            "railnet: pods that do not wait for their gang any more: 1",
        ],
    )
    assert out.endswith("there is nothing to uninstall\n")
    assert pod["spec"]["schedulingGates"] == gates[:1]
    assert server.api.get(f"{_WEBHOOK}/railnet-admission").status == 404
