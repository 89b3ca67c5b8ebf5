"""The command puts each DaemonSet into the uninstall mode, tells each change once, and ends when all nodes are done or the time is over."""

from collections.abc import Callable

import pytest

from railnet.apiserver.request import Request
from railnet.cluster_uninstall.failure import NotUninstalled
from railnet.cluster_uninstall.uninstall_mode import steps
from railnet.jobs.gang.engine import pod_group_name
from tests.jittered import jittered
from tests.railnet.cluster_uninstall.uninstalling_cluster import UninstallingCluster, daemon_set, pod
from tests.railnet.controllers.cluster_in_memory import Refusal

WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/railnet-admission"


def refused(status: int, verb: str, times: int = 10**9, retry_after: str = "") -> Callable[[Request], None]:
    """Return what refuses the first requests of one verb."""
    left = [times]

    def interfere(request: Request) -> None:
        if request.verb.right == verb and left[0]:
            left[0] -= 1
            raise Refusal(status, "no", retry_after)

    return interfere


def test_without_a_daemon_set_there_is_nothing_to_do() -> None:
    cluster = UninstallingCluster()
    other = daemon_set("flannel")
    other["metadata"]["labels"] = {"app": "flannel"}
    cluster.put(other)

    assert cluster.command.run() == (
        "no DaemonSet in namespace railnet has the label app.kubernetes.io/name=railnet: there is nothing to uninstall"
    )
    assert (steps(cluster.daemon_set("flannel")) != [], cluster.rested) == (True, [])


def test_all_daemon_sets_are_patched_at_once_and_each_change_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = UninstallingCluster()
    cluster.put(daemon_set("cpu", 1))
    cluster.put(daemon_set("gpu", 1))
    cluster.put_pod(pod("a", owner="cpu", uninstalls=False, ready=True))
    cluster.put_pod(pod("b", owner="gpu", uninstalls=False, ready=True))
    modes: list[bool] = []
    advice = "`kubectl -n railnet logs gpu-b` names the pods: delete them, or wait for their jobs"

    def begin() -> None:
        modes.extend(steps(cluster.daemon_set(name)) == [] for name in ("cpu", "gpu"))
        cluster.put_pod(pod("a", owner="cpu", ready=True))
        cluster.put_pod(pod("b", owner="gpu"))
        cluster.roll(1, 1, "cpu")
        cluster.roll(1, 0, "gpu")

    cluster.on_rest = [begin, lambda: None, lambda: cluster.roll(1, 1, "gpu")]

    assert cluster.command.run() == "the runtime is given back to its primary network on all nodes (2)"
    assert modes == [True, True]
    assert capsys.readouterr().err.splitlines() == [
        "railnet: DaemonSet cpu is in the uninstall mode: its nodes give the runtime back",
        "railnet: DaemonSet gpu is in the uninstall mode: its nodes give the runtime back",
        "railnet: 0 of 2 nodes are done. Not yet replaced: a (cpu-a), b (gpu-b)",
        f"railnet: 1 of 2 nodes are done. Waiting for pods with rails: b (gpu-b); {advice}",
    ]


def test_status_of_the_daemon_set_before_the_patch_ends_no_wait() -> None:
    cluster = UninstallingCluster()
    cluster.put(daemon_set(nodes=1))
    cluster.on_rest = [lambda: cluster.roll(1, 1)]

    cluster.command.run()

    assert len(cluster.rested) == 1


def test_second_run_goes_on_where_the_first_was_ended() -> None:
    cluster = UninstallingCluster(seconds=1)
    cluster.put(daemon_set(nodes=1))
    with pytest.raises(NotUninstalled):
        cluster.command.run()
    later = UninstallingCluster()
    later.memory.objects = cluster.memory.objects
    later.roll(1, 1)

    assert later.command.run().endswith("on all nodes (1)")
    assert later.memory.requests["patch daemonsets"] == 0


def test_end_of_the_time_names_the_nodes_and_what_to_do() -> None:
    cluster = UninstallingCluster(seconds=7)
    cluster.put(daemon_set(nodes=1))
    cluster.put_pod(pod("a"))

    with pytest.raises(NotUninstalled) as error:
        cluster.command.run()

    assert str(error.value).startswith(
        "not done in 7 s: 0 of 1 nodes are done. Waiting for pods with rails: a (railnet-a);"
    )
    assert str(error.value).endswith("on which all that is left works without a daemon")
    assert sum(cluster.rested) < 7


def test_request_that_fails_is_tried_again_with_growing_pauses() -> None:
    cluster = UninstallingCluster()
    cluster.put(daemon_set(nodes=0))
    cluster.memory.interfere = refused(503, "list", times=3)
    cluster.on_rest = [lambda: None] * 3 + [lambda: cluster.roll(0, 0)]

    cluster.command.run()

    assert cluster.rested[:3] == [jittered(0.5), jittered(1.0), jittered(2.0)]


def test_pause_is_as_long_as_the_api_server_asks() -> None:
    cluster = UninstallingCluster()
    cluster.memory.interfere = refused(429, "list", times=1, retry_after="20")

    cluster.command.run()

    assert cluster.rested == [20.0]


def test_api_server_that_does_not_come_back_ends_the_command_with_the_last_known_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = UninstallingCluster(seconds=60)
    cluster.put(daemon_set(nodes=1))
    cluster.put_pod(pod("a"))

    def lose() -> None:
        cluster.memory.interfere = refused(503, "list")

    cluster.on_rest = [lose]

    with pytest.raises(
        NotUninstalled, match=r"cannot list daemonsets.*503.*; tried for 60 s; at the last look: 0 of 1 nodes"
    ):
        cluster.command.run()
    assert 30 < sum(cluster.rested) < 60
    assert "trying again in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "verb", "text"),
    [
        (
            403,
            "list",
            "the service account railnet-uninstall lacks the right 'list' on daemonsets in namespace railnet",
        ),
        (403, "patch", "lacks the right 'patch' on daemonsets/railnet in namespace railnet"),
        (404, "list", "cannot list daemonsets in namespace railnet: no"),
        (422, "patch", "cannot patch daemonsets/railnet in namespace railnet: no"),
    ],
)
def test_refusal_of_the_api_server_ends_the_command_at_once(status: int, verb: str, text: str) -> None:
    cluster = UninstallingCluster()
    cluster.put(daemon_set(nodes=1))
    cluster.memory.interfere = refused(status, verb)

    with pytest.raises(NotUninstalled, match=text):
        cluster.command.run()
    assert cluster.rested == []


def test_daemon_set_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    cluster = UninstallingCluster()
    cluster.put(daemon_set(nodes=1))
    cluster.memory.interfere = refused(404, "patch")

    assert cluster.command.run().startswith("no DaemonSet")


def test_patch_whose_answer_is_lost_is_not_an_error() -> None:
    cluster = UninstallingCluster()
    cluster.put(daemon_set(nodes=0))
    lost = ["patch"]

    def answered(request: Request) -> None:
        if request.verb.right in lost:
            lost.clear()
            raise OSError("reset")

    cluster.memory.answered = answered
    cluster.on_rest = [lambda: None, lambda: cluster.roll(0, 0)]

    assert cluster.command.run() == "the runtime is given back to its primary network on all nodes (0)"
    assert steps(cluster.daemon_set()) == []


def put_gated(cluster: UninstallingCluster, name: str, *gates: str) -> None:
    metadata = {"name": name, "namespace": "ml", "labels": {"pod-group.scheduling.sigs.k8s.io/name": "ring"}}
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    cluster.memory.put(f"/api/v1/namespaces/ml/pods/{name}", {"metadata": metadata, "spec": spec})


def gates(cluster: UninstallingCluster) -> list[list[str]]:
    return [[gate["name"] for gate in one["spec"]["schedulingGates"]] for one in cluster.memory.of("pods")]


def test_gangs_are_let_go_after_the_webhook_is_deleted_and_before_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = UninstallingCluster(gangs=True)
    cluster.memory.put(WEBHOOK, {"metadata": {"name": "railnet-admission"}})
    put_gated(cluster, "w-0", "kueue.x-k8s.io/topology", "railnet.io/gang")
    put_gated(cluster, "w-1", "railnet.io/gang")
    put_gated(cluster, "w-2", "kueue.x-k8s.io/topology")
    webhook: list[bool] = []

    def note(request: Request) -> None:
        if request.about.resource == "pods" and request.verb.right == "patch":
            webhook.append(WEBHOOK in cluster.memory.objects)

    cluster.memory.interfere = note
    cluster.on_rest = [
        lambda: put_gated(cluster, "w-3", "railnet.io/gang")
    ]  # an API server that still knew the webhook

    cluster.command.run()

    assert gates(cluster) == [["kueue.x-k8s.io/topology"], [], ["kueue.x-k8s.io/topology"], []]
    assert webhook == [False, False, False]
    assert "railnet: pods that do not wait for their gang any more: 3\n" in capsys.readouterr().err


def test_pods_that_wait_for_a_pod_group_are_let_go_each_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = UninstallingCluster(gangs=True)
    for name, gang, group in (("w-0", "ring", "ring"), ("w-1", "ring", "ring"), ("w-2", "star", "authors")):
        metadata = {"name": name, "namespace": "ml", "labels": {"pod-group.scheduling.sigs.k8s.io/name": gang}}
        spec = {"containers": [{"name": "c"}], "schedulingGroup": {"podGroupName": pod_group_name(group)}}
        cluster.memory.put(f"/api/v1/namespaces/ml/pods/{name}", {"metadata": metadata, "spec": spec})

    cluster.command.run()

    (group_object,) = cluster.memory.of("podgroups")
    assert group_object["metadata"]["name"] == pod_group_name("ring")
    assert group_object["spec"] == {"schedulingPolicy": {"basic": {}}}
    assert "railnet: pods that do not wait for their gang any more: 1\n" in capsys.readouterr().err


def test_gates_stay_where_gangs_are_not_named() -> None:
    cluster = UninstallingCluster()
    cluster.memory.put(WEBHOOK, {"metadata": {"name": "railnet-admission"}})
    put_gated(cluster, "w-0", "railnet.io/gang")

    cluster.command.run()

    assert gates(cluster) == [["railnet.io/gang"]]
    assert WEBHOOK in cluster.memory.objects


def test_webhook_is_deleted_before_the_nodes_and_gates_stay(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = UninstallingCluster(webhook=True)
    cluster.memory.put(WEBHOOK, {"metadata": {"name": "railnet-admission"}})
    cluster.put(daemon_set(nodes=0))
    put_gated(cluster, "w-0", "railnet.io/gang")
    webhook: list[bool] = []

    def note(request: Request) -> None:
        if request.about.resource == "daemonsets" and request.verb.right == "patch":
            webhook.append(WEBHOOK in cluster.memory.objects)

    cluster.memory.interfere = note

    cluster.command.run()

    assert webhook == [False]
    assert gates(cluster) == [["railnet.io/gang"]]
    assert "the webhook configuration is deleted" in capsys.readouterr().err


def test_no_webhook_is_deleted_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    UninstallingCluster(webhook=True).command.run()

    assert "webhook" not in capsys.readouterr().err


def test_pod_that_changes_while_its_gate_is_removed_is_let_go_in_the_next_pass() -> None:
    cluster = UninstallingCluster(gangs=True)
    put_gated(cluster, "w-0", "railnet.io/gang")
    cluster.memory.interfere = refused(422, "patch", times=1)

    cluster.command.run()

    assert gates(cluster) == [[]]
    assert cluster.rested == [5.0, 5.0]


def test_gangs_that_are_not_let_go_in_time_leave_the_nodes_as_they_are() -> None:
    cluster = UninstallingCluster(4, gangs=True)
    cluster.put(daemon_set(nodes=1))
    put_gated(cluster, "w-0", "railnet.io/gang")

    with pytest.raises(NotUninstalled, match="pods may still wait for their gang"):
        cluster.command.run()
    assert cluster.memory.requests["patch daemonsets"] == 0
