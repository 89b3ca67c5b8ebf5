"""What the article's TFJob shows under any operator: `TfJobTests` is inherited by the test of each."""

from collections.abc import Callable

import pytest

from tests.cluster.pod_networks import net1
from tests.cluster.pods import RESOURCE
from tests.cluster.trained_tfjob import (
    BYTES,
    DECLARED,
    KILLED,
    NAMES,
    SERVERS,
    STEPS,
    WORKERS,
    Trained,
    containers,
    dialled,
    port,
)

_LITTLE = 1 << 20  # what may go over eth0: questions to the DNS, for as long as a peer is awaited, and the look at it


class TfJobTests:
    """The tests; a module has the fixtures `on_pods`, a job whose tasks meet on net1, and `on_host`, one on the host's network."""

    @pytest.fixture(params=["on_pods", "on_host"])
    def job(self, request: pytest.FixtureRequest) -> Trained:
        """Each of the jobs."""
        trained: Trained = request.getfixturevalue(request.param)
        return trained

    def test_job_on_two_nodes_succeeds_and_a_killed_worker_goes_on_after_its_checkpoint(self, job: Trained) -> None:
        peers = [name for name in NAMES if name != KILLED]

        assert "Succeeded" in job.conditions
        assert len({pod["spec"]["nodeName"] for pod in job.after.values()}) == 2
        assert all(f"complete at step {STEPS}" in job.logs[name] for name in WORKERS)
        assert job.made_again() == {KILLED}
        assert "started at step 0" not in job.logs[KILLED]
        assert containers(job.before, *peers) == containers(job.after, *peers)
        assert {restarts for _, restarts in containers(job.after, *NAMES).values()} == {0}

    def test_each_pod_has_a_vf_by_the_webhook(self, job: Trained) -> None:
        limits = {name: pod["spec"]["containers"][0]["resources"]["limits"] for name, pod in job.after.items()}

        assert {name: limit[RESOURCE] for name, limit in limits.items()} == dict.fromkeys(NAMES, "1")

    def test_labels_say_job_role_and_rank(self, job: Trained) -> None:
        labels = {name: pod["metadata"]["labels"] for name, pod in job.after.items()}
        keys = ("railnet.io/job", "railnet.io/role", "railnet.io/rank")

        assert {name: [found[key] for key in keys] for name, found in labels.items()} == {
            name: name.split("-") for name in NAMES
        }

    def test_tasks_meet_by_their_names_on_net1_and_talk_over_net1_alone(
        self, on_pods: Trained, measured: Callable[[str], None]
    ) -> None:
        addresses = {name: net1(pod) for name, pod in on_pods.after.items()}
        measured(f"TFJob, bytes by interface: { {name: seen.bytes for name, seen in on_pods.traffic.items()} }")

        for pod in on_pods.after.values():
            assert dialled(pod) == {name: f"{name}.mnist-net1.kubedl.svc:{DECLARED}" for name in NAMES}
        assert set(on_pods.traffic) == set(NAMES)
        for name in WORKERS:
            connections, carried = on_pods.traffic[name]
            assert {address for pair in connections for address in pair} <= set(addresses.values())
            assert {addresses[server] for server in SERVERS} <= {remote for _, remote in connections}
            # All of net1's count need not be this pod's: a VF's netdev counts on from one pod to the next. eth0 is the pod's alone.
            assert carried["eth0"] < _LITTLE < STEPS * len(SERVERS) * BYTES
        assert on_pods.reached[-1] == f"{addresses[KILLED]}:{DECLARED}"

    def test_job_on_the_pods_network_keeps_its_ports_and_headless_services(self, on_pods: Trained) -> None:
        for name, pod in on_pods.after.items():
            assert not pod["spec"].get("hostNetwork")
            assert port(on_pods.after, name) == DECLARED
            assert on_pods.services[name]["spec"]["clusterIP"] == "None"
            assert on_pods.services[name]["spec"]["ports"][0]["targetPort"] == DECLARED

    def test_service_leads_to_the_killed_worker_at_its_new_port(self, on_host: Trained) -> None:
        address = on_host.services[KILLED]["spec"]["clusterIP"]

        assert port(on_host.before, KILLED) != port(on_host.after, KILLED)
        assert len(on_host.reached) > 1
        assert set(on_host.reached) == {f"{address}:{DECLARED}"}

    def test_parameter_servers_are_cleaned_up_when_the_job_has_succeeded(self, job: Trained) -> None:
        assert set(job.ended) == set(WORKERS)
        assert "deleted Pod mnist-ps-0, Pod mnist-ps-1" in job.events["ParameterServersDeleted"]

    def test_nothing_is_left_of_the_job(self, job: Trained) -> None:
        assert job.left == []
