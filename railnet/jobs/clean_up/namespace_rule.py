"""The rule for training namespaces: when a namespace in which nothing goes on any more is deleted."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railnet.errors import Misconfigured
from railnet.jobs.clean_up.verdict import Action, Verdict
from railnet.jobs.job_completion import JobEnd, ended
from railnet.objects.pod_phase import ENDED, SUCCEEDED, phase
from railnet.objects.times import moment

LABEL = "railnet.io/training-namespace"  # of a namespace: "true"
TIME = "railnet.io/ttl"  # annotation of a namespace: how long after the last end it is deleted
VOLUMES = "railnet.io/delete-volumes"  # annotation of a namespace: "true" if its claims may go with it
_TIME = re.compile(r"([1-9][0-9]{0,4})([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class FinishedNamespace:
    """A training namespace in which nothing goes on.

    Attributes:
        since: since when, in seconds since 1970.
        claims: the names of its PersistentVolumeClaims.
    """

    since: float
    claims: Sequence[str]


def is_protected(namespace: str) -> bool:
    """Return whether a namespace is the cluster's own: it stays, even with the label."""
    return namespace == "default" or namespace.startswith("kube-")


def seconds(annotations: Mapping[str, str]) -> float:
    """Return how long after the last end a namespace is deleted.

    Raises:
        Misconfigured: the annotation is missing, or says no time.
    """
    text = annotations.get(TIME)
    match = _TIME.fullmatch(text or "")
    if match is None:
        trouble = f"the annotation {TIME} is missing" if text is None else f"{TIME} is {text!r:.80}"
        raise Misconfigured(
            f"{trouble}; it should be a number of seconds, minutes, hours or days, such as 30m, 24h or 7d"
        )
    return int(match[1]) * _SECONDS[match[2]]


def verdict(annotations: Mapping[str, str], contents: FinishedNamespace, now: float) -> Verdict:
    """Decide about a training namespace in which nothing goes on; `now` is in seconds since 1970.

    Raises:
        Misconfigured: an annotation is malformed.
    """
    time = seconds(annotations)
    volumes = annotations.get(VOLUMES, "false")
    if volumes not in ("true", "false"):
        raise Misconfigured(f"{VOLUMES} is {volumes!r:.80}; it should be one of: true, false")
    left = contents.since + time - now
    if left > 0:
        return Verdict(Action.WAIT, seconds=left)
    if contents.claims and volumes == "false":
        names = ", ".join(sorted(contents.claims)[:_MOST_NAMES])
        return Verdict(
            Action.KEEP,
            f"it has {len(contents.claims)} PersistentVolumeClaims ({names}), and their data would go with it; delete them, or annotate "
            f"the namespace {VOLUMES}=true",
            time,
        )
    return Verdict(Action.DELETE, f"nothing in it has gone on for {annotations[TIME]}")


def pod_end(pod: Mapping[str, Any]) -> JobEnd | None:
    """Return a pod's end; None if it goes on."""
    status = pod.get("status") or {}
    if phase(pod) not in ENDED:
        return None
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    times = (moment(((container.get("state") or {}).get("terminated") or {}).get("finishedAt")) for container in states)
    return JobEnd(phase(pod) == SUCCEEDED, max((time for time in times if time is not None), default=None))


def end(kind: str, document: Mapping[str, Any]) -> JobEnd | None:
    """Return the end of an object of any kind; None if it goes on, or never ends: a Deployment, a CronJob, a RayCluster."""
    return pod_end(document) if kind == "Pod" else ended(document)
