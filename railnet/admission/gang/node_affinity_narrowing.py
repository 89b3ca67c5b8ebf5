"""A pod's required node affinity, narrowed to the nodes of a constraint. Pure.

The terms of a pod are alternatives, and so are those of a constraint: together they are the pairs of both. A pair has all requirements of
both, also `matchFields`, which only the pod's term can have. Source: kubernetes/api, core/v1 NodeSelector; component-helpers, nodeaffinity.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from railnet.errors import Misconfigured
from railnet.jobs.gang.node_terms import NodeTerm, Requirement

AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_MAX_TERMS = 256  # the scheduler looks at each for each node

Term = Mapping[str, Any]


def narrowed(document: Mapping[str, Any], nodes: Sequence[NodeTerm]) -> tuple[Term, ...] | None:
    """Return the terms that a pod must have, so that it is on nodes of `nodes` only; None if its own say so already.

    Raises:
        Misconfigured: the pod's affinity is malformed, or there would be too many terms.
    """
    if not nodes:
        return None
    wanted = [tuple(map(_written, term.requirements)) for term in nodes]
    own = _terms(document)
    pairs = _pairs(own, wanted) if own else ({"matchExpressions": list(term)} for term in wanted)
    after = tuple(islice(pairs, _MAX_TERMS + 1))
    if len(after) > _MAX_TERMS:
        raise Misconfigured(
            f"the pod's {len(own)} terms of required node affinity and the constraint's {len(wanted)} nodeSelectors are more than "
            f"{_MAX_TERMS} pairs; write fewer of either"
        )
    return None if after == tuple(own) else after


def _pairs(own: Sequence[Term], wanted: Sequence[tuple[Term, ...]]) -> Iterator[Term]:
    keyed = [{_identity(expression): expression for expression in more} for more in wanted]
    for term in own:
        expressions = term.get("matchExpressions") or []
        known = set(map(_identity, expressions))
        # A term without requirements matches no node, and must not match some by getting requirements.
        matches_none = not expressions and not term.get("matchFields")
        if matches_none or any(more.keys() <= known for more in keyed):
            yield term
            continue
        for more in keyed:
            added = [expression for identity, expression in more.items() if identity not in known]
            yield {**term, "matchExpressions": [*expressions, *added]}


def _identity(expression: Any) -> str:
    """Return a text that is the same for the same requirement: a list cannot be looked up."""
    if not isinstance(expression, dict):
        return ""
    return json.dumps([expression.get("key"), expression.get("operator"), expression.get("values") or []])


def _written(requirement: Requirement) -> Term:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.comparison.value, **values}


def _terms(document: Mapping[str, Any]) -> list[Term]:
    field: Any = document.get("spec")
    for depth, key in enumerate(AFFINITY):
        if not isinstance(field, dict):
            raise _malformed(depth, "a mapping")
        field = field.get(key)
        if field is None:
            return []
    if not isinstance(field, list) or not all(isinstance(term, dict) for term in field):
        raise _malformed(len(AFFINITY), "a list of mappings")
    if not all(isinstance(term.get("matchExpressions"), list | None) for term in field):
        raise Misconfigured(f"spec.{'.'.join(AFFINITY)}: matchExpressions of a term is no list; write one")
    return field


def _malformed(depth: int, wanted: str) -> Misconfigured:
    return Misconfigured(f"spec{''.join(f'.{key}' for key in AFFINITY[:depth])} is not {wanted}; write it as one")
