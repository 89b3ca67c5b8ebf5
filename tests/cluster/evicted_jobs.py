"""What the eviction of a pod does to a job, tried with its real controller and kubelet, and what the table of kinds says of it.

The table is `railnet.jobs.eviction_tolerance`. The pods of the jobs do nothing, and end with 143 at SIGTERM, as a program does that handles no signal.
"""

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from railnet.jobs.eviction_tolerance import tolerance
from railnet.objects.owner_reference import OwnerReference, controlling
from tests.cluster import busybox
from tests.cluster.node import ClusterNode
from tests.cluster.operator_jobs import SECONDS, OperatorJob
from tests.cluster.process import wait_until

_WAIT = 'trap "exit 143" TERM; sleep 3600 & wait'
_FAILED = "Failed"
_LOOK_SECONDS = 0.5


class EvictedJob(NamedTuple):
    """A job of which one pod was evicted.

    Attributes:
        has_failed: whether that ended the job; otherwise a new pod runs in the place of the evicted one.
        is_refused: whether the table says that no pod of such a job is evicted.
    """

    has_failed: bool
    is_refused: bool


def pod_template(container: str, **of_pods: Any) -> dict[str, Any]:
    """Return the template of a pod that does nothing."""
    one = {"name": container, "image": busybox.NAME, "command": ["sh", "-c", _WAIT]}
    return {"spec": {"containers": [one], "terminationGracePeriodSeconds": 5, **of_pods}}


def stays(*, has_failed: bool) -> float:
    """Return how many seconds to look at a job that has a new pod: long where it should fail, which ends the look."""
    return 60.0 if has_failed else 5.0


def evict_one_pod(node: ClusterNode, job: Mapping[str, Any], pods: int, seconds: float) -> EvictedJob:
    """Run a job of so many pods in a namespace of its own, and evict the last of them.

    Then wait until the job has failed, or has had a new pod that runs for some seconds.
    """
    with OperatorJob(node, job, labels={}) as running:
        before = running.wait_for_phase("Running", pods)
        name = max(before)
        is_refused = tolerance(_chain(running, before[name])).refusal is not None
        _evict(running, name)
        known = {pod["metadata"]["uid"] for pod in before.values()}

        def has_failed() -> bool:
            return _FAILED in running.conditions()

        def goes_on() -> bool:
            new = [pod for pod in running.pods().values() if pod["metadata"]["uid"] not in known]
            return any(pod["status"].get("phase") == "Running" for pod in new)

        wait_until(lambda: has_failed() or goes_on(), SECONDS, f"{running.kind} to fail, or to have a new pod")
        until = time.monotonic() + seconds
        while not (failed := has_failed()) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
    return EvictedJob(failed, is_refused)


def _evict(job: OperatorJob, pod: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": job.namespace}}
    path = f"/api/v1/namespaces/{job.namespace}/pods/{pod}/eviction"
    job.kubectl.run("create", f"--raw={path}", "--filename=-", stdin=json.dumps(eviction))


def _chain(job: OperatorJob, pod: Mapping[str, Any]) -> list[tuple[OwnerReference, dict[str, Any] | None]]:
    """Return the controller of a pod, that one's controller, and so on."""
    chain: list[tuple[OwnerReference, dict[str, Any] | None]] = []
    document: Mapping[str, Any] = pod
    while (reference := controlling(document["metadata"].get("ownerReferences", ()))) is not None:
        owner = OwnerReference.read(reference)
        kind = f"{owner.kind.lower()}s.{owner.api_version.partition('/')[0]}"
        found: dict[str, Any] = job.kubectl.get(kind, owner.name, f"--namespace={job.namespace}")
        chain.append((owner, found))
        document = found
    return chain
