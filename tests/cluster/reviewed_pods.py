"""Golden pods and near misses as a real API server takes them, by dry runs: what it makes of them, and which it asks about."""

import copy
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from railnet.jobs.operators import OPERATORS
from railnet.jobs.railnet_labels import NET1
from railnet.jobs.recogniser import recognise
from railnet.objects.pod import parse
from tests.cluster.admission_on_node import GPUS, OFF, RAILS
from tests.cluster.api_requests import ApiRequests
from tests.railnet.admission.goldens import GOLDENS, Golden
from tests.railnet.admission.reviewing import applied
from tests.railnet.admission.test_near_misses import near_misses_of_goldens

_NAMESPACES = {None: GPUS, True: RAILS, False: OFF}


def _fits(golden: Golden) -> bool:
    """Return whether this cluster can review a golden pod.

    A static pod's mirror is the node's to create. A configuration of its own, host-network mode and PriorityClasses are not this cluster's.
    """
    pod = parse(golden.pod)
    of_another_cluster = (
        golden.configuration is not None or golden.host_port is not None or pod.priority_class is not None
    )
    return not (of_another_cluster or pod.mirror)


REVIEWED = [golden for golden in GOLDENS if _fits(golden)]


def differences(api: ApiRequests, golden: Golden) -> list[str]:
    """Say in what a golden pod differs from what was expected of it; the API server's own defaults are not looked at."""
    namespace = _NAMESPACES[golden.net1]
    answer = api.create(_here(golden.pod, namespace), dry_run=True)
    if "denied" in golden.expected:
        words = golden.expected["denied"].partition(": ")[2].replace(f"'{golden.namespace}'", f"'{namespace}'")
        return [] if words in answer.document.get("message", "") else [f"{golden.name}: {answer}"]
    if answer.status != HTTPStatus.CREATED:
        return [f"{golden.name}: {answer}"]
    found, expected = _ours(answer.document), _ours(applied(golden.pod, golden.expected.get("patch", [])))
    return [f"{golden.name}: {key}: {found[key]}" for key in expected if found[key] != expected[key]]


def outside_the_scope() -> Iterator[dict[str, Any]]:
    """Give pods that ask for GPUs and are one label away from an operator's.

    Two kinds of near misses are within the scope: selectors do not see containers' names, and of a pod whose own label is
    malformed its author should hear. Static pods' mirrors are not the administrator's to create.
    """
    for operator in OPERATORS:
        for name, document in near_misses_of_goldens(operator):
            pod = parse(document)
            marked = NET1 in pod.labels or recognise(pod, lambda _: False) is not None
            if not marked and not pod.mirror and not name.endswith("another container"):
                yield _here(document, GPUS)


def _here(pod: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Give a pod of a namespace of this cluster, which has no service accounts of operators, and no PriorityClasses for training."""
    changed = copy.deepcopy(pod)
    changed["metadata"]["namespace"] = namespace
    for key in ("serviceAccountName", "priorityClassName", "priority", "preemptionPolicy"):
        changed["spec"].pop(key, None)
    return changed


def _ours(pod: dict[str, Any]) -> dict[str, Any]:
    """Give what a review may change."""
    found = {key: pod["metadata"].get(key) or {} for key in ("labels", "annotations")}
    for container in pod["spec"]["containers"]:
        found[f"{container['name']}.env"] = container.get("env") or []
        found[f"{container['name']}.resources"] = container.get("resources") or {}
    return found
