"""One condition and the taints of one node: how they are looked at and changed with no other rights than to patch `nodes/status` and `nodes`.

A condition is merged into the list by its type (kubernetes/api, core/v1 NodeStatus: `patchMergeKey=type`), so that of the conditions of
kubelet and of other programs none is touched. The list of taints has no merge key: it is replaced as a whole, with the
`resourceVersion` of the node that was looked at, so that no taint of another program is lost. As with labels (`railnet.apiserver.node_labels`)
a patch that changes nothing shows the node, and needs no right to read.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from railnet.apiserver.request import ApiObject, JsonObject, Request, merge_patch, strategic_merge_patch


class NodeCondition(NamedTuple):
    """A condition as the API server has it: `since` is its `lastTransitionTime`, None if it has none that can be read."""

    status: str
    since: datetime | None
    reason: str = ""
    message: str = ""


class NodeState(NamedTuple):
    """A node, as an answer shows it: the condition that was asked for, all taints, and the version that a change of taints must name."""

    condition: NodeCondition | None
    taints: Sequence[Any]
    version: str


def look(node: str) -> Request:
    """Return the request whose answer shows a node's conditions and taints.

    Raises:
        ValueError: as `ApiObject`.
    """
    return strategic_merge_patch(_status(node), {})


def set_condition(  # noqa: PLR0913 - the fields of a condition
    node: str, kind: str, *, status: str, reason: str, message: str, since: datetime, now: datetime
) -> Request:
    """Return the request that sets one condition of a node, and no other.

    Raises:
        ValueError: as `ApiObject`.
    """
    condition = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": _text(since),
        "lastHeartbeatTime": _text(now),
    }
    return strategic_merge_patch(_status(node), {"status": {"conditions": [condition]}})


def remove_condition(node: str, kind: str) -> Request:
    """Return the request that removes one condition of a node, if the node has it.

    Raises:
        ValueError: as `ApiObject`.
    """
    return strategic_merge_patch(_status(node), {"status": {"conditions": [{"$patch": "delete", "type": kind}]}})


def set_taints(node: str, taints: Sequence[Any], version: str) -> Request:
    """Return the request that replaces all taints of a node, unless the node has changed since the version (then `Conflict`).

    Raises:
        ValueError: as `ApiObject`; or the version is empty, and nothing would keep other programs' taints.
    """
    if not version:
        raise ValueError(f"the answer about nodes/{node} shows no resourceVersion")
    patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": list(taints)}}
    return merge_patch(ApiObject("v1", "nodes", node), patch)


def parse(answer: JsonObject, kind: str) -> NodeState:
    """Return what an answer shows of a node; what has another form than Kubernetes gives it is taken for absent."""
    status, spec, metadata = (_object(answer.get(part)) for part in ("status", "spec", "metadata"))
    version = metadata.get("resourceVersion")
    conditions = [
        condition for condition in map(_object, _list(status.get("conditions"))) if condition.get("type") == kind
    ]
    return NodeState(
        _condition(conditions[0]) if conditions else None,
        _list(spec.get("taints")),
        version if isinstance(version, str) else "",
    )


def _condition(condition: JsonObject) -> NodeCondition:
    status, since, reason, message = (
        text if isinstance(text := condition.get(key), str) else ""
        for key in ("status", "lastTransitionTime", "reason", "message")
    )
    return NodeCondition(status, _time(since), reason, message)


def _object(field: Any) -> JsonObject:
    return field if isinstance(field, dict) else {}


def _list(field: Any) -> list[Any]:
    return field if isinstance(field, list) else []


def _status(node: str) -> ApiObject:
    return ApiObject("v1", "nodes", node, subresource="status")


def _time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else None


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # metav1.Time has no fractions of a second
