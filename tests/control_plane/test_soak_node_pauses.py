"""What the API server says of pods that a node failed is read, and what a pod did itself, or Railnet, is no pause."""

from typing import Any

import pytest

from simnode.chaos.job_pauses import PodSeen, Span, pauses
from tests.control_plane.soak_node_pauses import seen

CREATED, LATER = "2026-11-27T14:16:08Z", "2026-11-27T14:16:10Z"
AT = 1795788968.0
JOB = {"batch.kubernetes.io/job-name": "train"}


def a_pod(
    status: dict[str, Any], uid: str = "u1", created: str = CREATED, labels: dict[str, str] = JOB
) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "creationTimestamp": created, "labels": labels}, "status": status}


def an_event(reason: str, message: str = "", uid: str = "u1", component: str = "kubelet") -> dict[str, Any]:
    times = {"firstTimestamp": CREATED, "lastTimestamp": LATER}
    about, source = {"uid": uid}, {"component": component}
    return {"involvedObject": about, "reason": reason, "message": message, "source": source, **times}


def terminated(reason: str) -> dict[str, Any]:
    state = {"terminated": {"reason": reason, "exitCode": 128, "finishedAt": LATER}}
    return {"phase": "Failed", "containerStatuses": [{"state": state}]}


REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {"startedAt": "2026-11-27T14:16:22Z"}}}]}
PENDING = {"phase": "Pending"}
RAILNETS = 'failed to setup network for sandbox "0a": plugin type="railnet" failed (add): the port is down'


@pytest.mark.parametrize(
    ("status", "event", "found"),
    [
        (REFUSED, an_event("UnexpectedAdmissionError"), PodSeen(AT, AT)),
        (REFUSED, an_event("UnexpectedAdmissionError", uid="u2"), PodSeen(AT)),
        (REFUSED, an_event("UnexpectedAdmissionError", component="another-component"), PodSeen(AT)),
        ({"phase": "Failed", "reason": "Evicted"}, an_event("Evicted"), PodSeen(AT)),
        (terminated("StartError"), an_event("Pulled"), PodSeen(AT, AT + 2)),
        (terminated("Error"), an_event("Pulled"), PodSeen(AT)),
        (RUNNING, an_event("FailedCreatePodSandBox", "EOF"), PodSeen(AT, None, (AT, AT + 2), AT + 14)),
        (RUNNING, an_event("Failed", "PreStartContainer rpc failed"), PodSeen(AT, None, (AT, AT + 2), AT + 14)),
        (RUNNING, an_event("FailedCreatePodSandBox", RAILNETS), PodSeen(AT, None, (), AT + 14)),
        (PENDING, an_event("FailedCreatePodSandBox", "EOF"), PodSeen(AT, None, (AT, AT + 2))),
    ],
    ids=[
        "refused",
        "another pod's refusal",
        "another program's event",
        "evicted",
        "not started",
        "the program's own end",
        "sandbox",
        "container",
        "refused by Railnet",
        "not yet",
    ],
)
def test_what_the_node_failed_is_seen(status: dict[str, Any], event: dict[str, Any], found: PodSeen) -> None:
    assert seen([a_pod(status)], [event]) == [found]


def test_failed_pod_of_no_job_has_no_pause_of_the_job_controller() -> None:
    assert seen([a_pod(REFUSED, labels={})], [an_event("UnexpectedAdmissionError")]) == [PodSeen(AT)]


def test_gang_of_which_two_pods_were_refused_waits_for_twenty_seconds() -> None:
    first, second = ({**JOB, "batch.kubernetes.io/job-completion-index": index} for index in "01")
    pods = [a_pod(REFUSED, "u1", labels=first), a_pod(REFUSED, "u2", labels=second)]
    pods += [a_pod(RUNNING, "next", "2026-11-27T14:16:28Z", own) for own in (first, second)]
    events = [an_event("UnexpectedAdmissionError", uid=uid) for uid in ("u1", "u2")]

    assert set(pauses(seen(pods, events))) == {Span(AT, AT + 20)}
