"""Says how far a pod has come, and what it waits for, in words for people; reads the pod as the API server reports it."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from railnet.jobs.gang.engine import named_pod_group
from railnet.jobs.gang.recogniser import GATE
from railnet.objects.conditions import unscheduled
from railnet.objects.pod_phase import FAILED, RUNNING, SUCCEEDED, phase

_LONGEST = 320  # the scheduler's reasons of a large cluster have two hundred characters
_PREEMPTION = " preemption: "
_STARTS = frozenset({"ContainerCreating", "PodInitializing"})


class Stage(StrEnum):
    """A pod's stages, in their order."""

    UNSCHEDULED = "unscheduled"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Progress(NamedTuple):
    """A pod's stage; `why` says what it waits for, or why it failed, and is empty where there is nothing to say."""

    stage: Stage
    why: str = ""


def progress(pod: Mapping[str, Any]) -> Progress:
    """Return how far a pod has come."""
    status = pod.get("status") or {}
    pod_phase = phase(pod)
    if pod_phase == SUCCEEDED:
        return Progress(Stage.SUCCEEDED)
    if pod_phase == FAILED:
        return Progress(Stage.FAILED, said(status.get("reason") or "", status.get("message") or _exit(status)))
    if not (pod.get("spec") or {}).get("nodeName"):
        return Progress(Stage.UNSCHEDULED, _gated(pod.get("spec") or {}) or _unscheduled(pod) or _grouped(pod))
    waiting = next(_waiting(status), None)
    if pod_phase == RUNNING:
        return Progress(Stage.RESTARTING, waiting) if waiting else Progress(Stage.RUNNING)
    return Progress(Stage.STARTING, waiting or "")


def said(reason: str, message: str) -> str:
    """Return a reason and its message in one short line."""
    words = " ".join(_without_preemption(message).split())
    text = f"{reason}: {words}" if reason and words else reason or words
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _without_preemption(message: str) -> str:
    """Leave out the scheduler's last sentence, about pods that it could evict: it repeats the first one.

    In some versions, such as 1.34, the words of other plugins begin this sentence: "no new claims to deallocate, preemption: …".
    """
    words, preemption, _ = message.partition(_PREEMPTION)
    if not preemption or not words.endswith(","):
        return words
    before, end, _ = words.rpartition(". ")
    return f"{before}." if end else words.removesuffix(",")


def _gated(spec: Mapping[str, Any]) -> str:
    """Return why a pod of a gang waits: the condition that the API server sets says only that there is a gate."""
    gates = spec.get("schedulingGates") or ()
    return "behind a gate until its whole gang has a place" if any(gate.get("name") == GATE for gate in gates) else ""


def _grouped(pod: Mapping[str, Any]) -> str:
    """Return which PodGroup a pod waits for, of which the scheduler says nothing before it exists."""
    group = named_pod_group(pod.get("spec") or {})
    return f"waits for the PodGroup {group}" if group else ""


def _unscheduled(pod: Mapping[str, Any]) -> str:
    scheduled = unscheduled(pod)
    return "" if scheduled is None else said(scheduled.reason, scheduled.message)


def _waiting(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield why containers wait; a container that is only created has no reason."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = container.get("state") or {}
        waiting = state.get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _STARTS:
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("exitCode")
            message = waiting.get("message") or ""
            yield said(waiting["reason"], message if last is None else f"exit code {last}; {message}".rstrip("; "))


def _exit(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return f"container {container.get('name')} ended with exit code {ended['exitCode']}"
    return ""
