"""A decision in words: for the pod's annotation, for the API client that creates the pod, and for `railnet admission explain`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from admission import annotation_keys, tf_config
from admission.decision import Additions, Decision, Untouched
from training.pod import Pod

_LONGEST = 1024  # of all annotations of a pod together, Kubernetes keeps 256 KiB
_LONGEST_WARNING = 256  # the API server cuts longer ones


def annotation(additions: Additions, before: str | None) -> str:
    """Write what is added and why; if an earlier review has written something, only what is added now, after that."""
    said = "; ".join(_clauses(additions))
    if before is not None:
        return f"{before}; then {said}"[:_LONGEST]
    member = additions.member
    return f"{member} ({member.operator.name}), {additions.why}: {'; '.join((said, *additions.kept))}"[:_LONGEST]


def report(pod: Pod, decision: Decision, operations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Write, line by line, what a review would do to a pod, and why."""
    yield f"pod {pod.namespace or 'default'}/{pod.name}"
    if isinstance(decision, Untouched):
        yield f"  untouched: {decision.why}"
    else:
        yield from _reported(decision)
        yield from (f"  {operation['op']} {operation['path']}: {_json(operation['value'])}" for operation in operations)
    yield from (f"  warning: {text}" for text in warnings(pod, decision))


def _reported(additions: Additions) -> Iterator[str]:
    member = additions.member
    yield f"  operator:  {member.operator.name}"
    yield f"  member:    {member}, {'of unknown size' if member.size is None else f'of {member.size} pods'}"
    yield f"  container: {additions.container}"
    yield f"  because:   {additions.why}"
    yield from (f"  as it is:  {text}" for text in additions.kept)
    yield from (f"  done:      {text}" for text in list(_clauses(additions)) or ["nothing is missing"])


def warnings(pod: Pod, decision: Decision) -> tuple[str, ...]:
    """Tell of annotations that do nothing: unknown ones, and all of ours on a pod that is given nothing."""
    ours = sorted(
        key for key in pod.annotations if key.startswith(annotation_keys.PREFIX) and key not in annotation_keys.WRITTEN
    )
    if isinstance(decision, Untouched):
        said = [f"{key} does nothing on this pod: {decision.why}" for key in ours]
    else:
        known = ", ".join(annotation_keys.READ)
        said = [
            f"{key} does nothing in this version, which reads: {known}"
            for key in ours
            if key not in annotation_keys.READ
        ]
        if decision.replaced:
            name = tf_config.service(decision.member.job)
            said.append(
                f"{tf_config.VARIABLE} has names in Service {name}: it must be there, headless, with net1's addresses"
            )
    return tuple(f"{text:.{_LONGEST_WARNING}}" for text in said)


def _clauses(additions: Additions) -> Iterator[str]:
    if additions.vfs:
        yield f"added {additions.vfs} {additions.resource} to container {additions.container}"
    if additions.variables:
        names = ", ".join(variable.name for variable in additions.variables)
        yield f"set {names} in container {additions.container}"
    if additions.replaced:
        names = ", ".join(variable.name for variable in additions.replaced)
        yield f"gave {names} in container {additions.container} names on net1"
    if additions.labels:
        yield f"labelled {', '.join(sorted(additions.labels))}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
