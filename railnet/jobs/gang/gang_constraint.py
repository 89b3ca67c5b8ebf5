"""The annotation that says where a gang may be: `alibabacloud.com/topology-aware-constraint`, and what this project adds to it.

The article prints {"name":…,"required":{"topologies":[{"key":…}],"nodeSelectors":[{"matchLabels":…,"matchExpressions":…}]}}; added are
"preferred":{"topologies":[…]} and "relaxAfterSeconds". A selector is one of Kubernetes (meta/v1 LabelSelector), also with the operators Gt
and Lt of a pod's node affinity, since it is written there. Several selectors are alternatives.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from railnet.errors import Misconfigured
from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement
from railnet.jobs.gang.request import Constraint

CONSTRAINT = "alibabacloud.com/topology-aware-constraint"

MOST_KEYS = 16  # a fabric has some five levels; each costs the planner a list of all nodes, and each placed pod a label
_MAX_CHARACTERS = 16 << 10  # a constraint has some hundred; this limits the terms of a pod's node affinity, too
_MAX_NAME = 253
_MAX_SECONDS = 366 * 24 * 3600
_MAX_DIGITS = 32
_EXAMPLE = '{"name":"ring","required":{"topologies":[{"key":"kubernetes.io/hostname"}]}}'
# As the article prints it for YAML: {\"name\":\"test\",…}; in single quotes, or as a block, the backslashes reach the annotation.
_ESCAPED = re.compile(r'\s*\{\s*\\"')

_NAME_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = re.compile(
    rf"({_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_NAME_PART}"
)  # k8s.io/apimachinery/pkg/util/validation, IsQualifiedName
_VALUE = re.compile(rf"({_NAME_PART})?")  # IsValidLabelValue
_WITH_VALUES = (Comparison.IN, Comparison.NOT_IN)
_WITH_NUMBER = (Comparison.GREATER, Comparison.LESS)


def constraint(text: str) -> Constraint:
    """Read the annotation's text.

    Raises:
        Misconfigured: it is not JSON, or is no constraint. The message names the annotation, the place in it, and what to write.
    """
    try:
        return _constraint(text)
    except RecursionError:  # from the parser, or from the words about a value
        raise Misconfigured(f"{CONSTRAINT} is nested too deeply; it should be like {_EXAMPLE}") from None


def _constraint(text: str) -> Constraint:
    members = _members(_document(text), "", ("name", "required", "preferred", "relaxAfterSeconds"))
    required = _members(members.get("required"), "required", ("topologies", "nodeSelectors"))
    preferred = _members(members.get("preferred"), "preferred", ("topologies",))
    levels = tuple(_topologies(preferred.get("topologies"), "preferred.topologies"))
    keys = tuple(_topologies(required.get("topologies"), "required.topologies"))
    if len(levels) + len(keys) > MOST_KEYS:
        raise Misconfigured(
            f"{CONSTRAINT} has {len(levels) + len(keys)} topologies; it should have at most {MOST_KEYS}, required and preferred ones together"
        )
    return Constraint(
        name=_name(members.get("name")),
        required=keys,
        preferred=levels,
        nodes=_terms(required.get("nodeSelectors")),
        relax_after=_relax_after(members.get("relaxAfterSeconds"), levels),
    )


def _document(text: str) -> Any:
    if len(text) > _MAX_CHARACTERS:
        raise Misconfigured(f"{CONSTRAINT} has {len(text)} characters; it should have at most {_MAX_CHARACTERS}")
    document = _json(_json(f'"{text.strip()}"', strict=False) if _ESCAPED.match(text) else text)
    return _json(document) if isinstance(document, str) else document  # quoted twice: "{\"name\":…}"


def _json(text: str, *, strict: bool = True) -> Any:
    """Read JSON; if not `strict`, a string may have line breaks."""
    try:
        return json.loads(
            text,
            strict=strict,
            object_pairs_hook=_once_each,
            parse_int=_whole,
            parse_float=_decimal,
            parse_constant=_no_number,
        )
    except json.JSONDecodeError as error:
        around = text[max(0, error.pos - 20) : error.pos + 20]
        raise Misconfigured(
            f"{CONSTRAINT} is not JSON: {error.msg} at line {error.lineno} column {error.colno} (character {error.pos}, at "
            f"{around!r:.90}); it should be like {_EXAMPLE}"
        ) from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Misconfigured(f"{CONSTRAINT} has the key {twice!r:.80} twice in one object; remove one of them")
    return members


def _whole(text: str) -> int:
    return int(_short(text))


def _decimal(text: str) -> float:
    return float(_short(text))


def _short(text: str) -> str:
    if len(text) > _MAX_DIGITS:
        raise Misconfigured(f"{CONSTRAINT} has a number of {len(text)} digits; it should have at most {_MAX_DIGITS}")
    return text


def _no_number(text: str) -> float:
    raise Misconfigured(f"{CONSTRAINT} has {text}, which is no number in JSON; write a number, or remove it")


def _name(value: Any) -> str:
    name = "" if value is None else _text(value, "name")
    if len(name) > _MAX_NAME:
        raise Misconfigured(f"{CONSTRAINT}: name has {len(name)} characters; it should have at most {_MAX_NAME}")
    return name


def _topologies(value: Any, path: str) -> Iterator[str]:
    seen = set()
    for entry, place in _entries(value, path):
        keys = _members(entry, place, ("key",))
        key = _key(keys.get("key"), f"{place}.key")
        if key in seen:
            raise Misconfigured(f"{CONSTRAINT}: {place}.key is {key} again; remove one of them")
        seen.add(key)
        yield key


def _terms(value: Any) -> tuple[NodeTerm, ...]:
    """Return the alternatives; none if one of them is every node: a term without requirements would match no node in a pod's affinity."""
    terms = tuple(
        NodeTerm(tuple(_requirements(entry, place))) for entry, place in _entries(value, "required.nodeSelectors")
    )
    return terms if all(term.requirements for term in terms) else ()


def _requirements(entry: Any, place: str) -> Iterator[Requirement]:
    selector = _members(entry, place, ("matchLabels", "matchExpressions"))
    labels = selector.get("matchLabels")
    for key, value in _object(labels, f"{place}.matchLabels").items():
        path = f"{place}.matchLabels"
        yield Requirement(_key(key, path), Comparison.IN, (_value(value, f"{path}[{key!r:.80}]"),))
    expressions = selector.get("matchExpressions")
    # The article's structure prints {} here, where a selector has a list.
    for expression, path in _entries(None if expressions == {} else expressions, f"{place}.matchExpressions"):
        yield _expression(_members(expression, path, ("key", "operator", "values")), path)


def _expression(expression: Mapping[str, Any], path: str) -> Requirement:
    key = _key(expression.get("key"), f"{path}.key")
    word = expression.get("operator")
    if word not in list(Comparison):
        raise Misconfigured(
            f"{CONSTRAINT}: {path}.operator is {word!r:.60}; it should be one of {', '.join(Comparison)}"
        )
    comparison = Comparison(word)
    values = tuple(_value(value, place) for value, place in _entries(expression.get("values"), f"{path}.values"))
    _check_values(comparison, values, path)
    return Requirement(key, comparison, values)


def _check_values(comparison: Comparison, values: tuple[str, ...], path: str) -> None:
    if comparison in _WITH_VALUES:
        right, wanted = bool(values), "at least one value"
    elif comparison in _WITH_NUMBER:
        right, wanted = (
            len(values) == 1 and values[0].isascii() and values[0].isdecimal(),
            "one whole number as a string",
        )
    else:
        right, wanted = not values, "no values"
    if not right:
        raise Misconfigured(
            f"{CONSTRAINT}: {path}.values is {list(values)!r:.80}; with operator {comparison} it should have {wanted}"
        )


def _relax_after(value: Any, levels: tuple[str, ...]) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_SECONDS:
        raise Misconfigured(
            f"{CONSTRAINT}: relaxAfterSeconds is {value!r:.60}; it should be a number of seconds from 0 to {_MAX_SECONDS}"
        )
    if not levels:
        raise Misconfigured(
            f"{CONSTRAINT}: relaxAfterSeconds is {value!r:.60}, but there is no preferred.topologies that it could relax; "
            "add it, or remove relaxAfterSeconds"
        )
    return float(value)


def _key(value: Any, path: str) -> str:
    key = _text(value, path)
    prefix, _, _ = key.rpartition("/")
    if not _KEY.fullmatch(key) or len(prefix) > _MAX_NAME:
        raise Misconfigured(
            f"{CONSTRAINT}: {path} is {key!r:.80}; it should be the key of a node's label, such as kubernetes.io/hostname"
        )
    return key


def _value(value: Any, path: str) -> str:
    text = _text(value, path)
    if not _VALUE.fullmatch(text):
        raise Misconfigured(f"{CONSTRAINT}: {path} is {text!r:.80}; no label can have this value")
    return text


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise Misconfigured(f"{CONSTRAINT}: {path} is {value!r:.60}; it should be a string")
    return value


def _entries(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Yield a list's entries, each with its path; null counts as an empty list, as Go reads it."""
    if not isinstance(value, list | None):
        raise Misconfigured(f"{CONSTRAINT}: {path} is {value!r:.60}; it should be a list")
    for position, entry in enumerate(value or ()):
        yield entry, f"{path}[{position}]"


def _members(value: Any, path: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    members = _object(value, path)
    unknown = next((key for key in members if key not in known), None)
    if unknown is not None:
        where = f"{CONSTRAINT}: {path}" if path else CONSTRAINT
        raise Misconfigured(f"{where} has the unknown key {unknown!r:.80}; known are {', '.join(known)}")
    return members


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict | None):
        where = f"{CONSTRAINT}: {path}" if path else CONSTRAINT
        raise Misconfigured(f"{where} is {value!r:.60}; it should be an object, like {_EXAMPLE if not path else '{…}'}")
    return value or {}
