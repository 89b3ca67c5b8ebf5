"""The decision about a pod's gang in words: for the pod's annotation, for the client that creates it, and for `explain`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from railnet.admission.explanation import MAX_WARNING, operation
from railnet.admission.gang.gang_decision import GangDecision, LeftAlone, Waits
from railnet.jobs.gang.recogniser import GATE, described

_MAX_WARNINGS = 8


def waits(decision: Waits) -> str:
    """Return the text of the annotation."""
    where = "" if decision.request.constraint is None else f", {described(decision.request.constraint)}"
    return f"waits with gang {decision.request.name}, {_members(decision)}{where}, {_how(decision)}"


def warnings(decision: GangDecision) -> tuple[str, ...]:
    """Return what the client that creates the pod should know."""
    if isinstance(decision, LeftAlone):
        removed = f"the scheduling gate {GATE} is removed, because nothing else would: {decision.reason}"
        texts = [removed] if decision.gated else []
    else:
        texts = [f"{key} has no effect: Railnet does not read it" for key in decision.unread]
        more = len(texts) - _MAX_WARNINGS
        if more > 0:
            texts = [*texts[:_MAX_WARNINGS], f"{more} more annotations about gangs have no effect"]
        texts += filter(None, (decision.doubt, decision.engine_doubt))
    return tuple(f"{text:.{MAX_WARNING}}" for text in texts)


def report(decision: GangDecision, operations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines that say what the review of the gang does to a pod, and why."""
    if isinstance(decision, LeftAlone):
        yield f"  gang:      none, so the pod does not wait: {decision.reason}"
    else:
        constraint = decision.request.constraint
        yield f"  gang:      {decision.request.name}, {_members(decision)}"
        yield f"  place:     {'on any nodes, all at once' if constraint is None else described(constraint)}"
        then = "create" if decision.group else "remove"
        yield f"  waits:     {_how(decision)}, which the controllers {then} when the gang has its place"
    yield from map(operation, operations)
    if isinstance(decision, Waits):
        yield from (f"  warning: {text}" for text in warnings(decision))


def _how(decision: Waits) -> str:
    return f"for the PodGroup {decision.group}" if decision.group else f"behind the scheduling gate {GATE}"


def _members(decision: Waits) -> str:
    least = decision.request.min_available
    return "all pods of its job" if least is None else f"at least {least} pod{'s' * (least > 1)}"
