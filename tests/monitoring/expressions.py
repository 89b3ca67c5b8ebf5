"""The metrics and labels that a PromQL expression names. promtool decides whether the expression is valid; this reads valid ones alone.

Source: prometheus.io/docs/prometheus/latest/querying, "Expression language data types" and "Operators".
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tests.monitoring.exported import Series

_TOKEN = re.compile(
    r"""\s+|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>\d[\w.]*)|(?P<name>[A-Za-z_][\w:]*)"""
    r"""|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){}\[\],=<>:@])"""
)
_GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "offset", "bool", "atan2"}
_AGGREGATIONS = {
    *("sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile")
}
# What Grafana replaces, with a value that it may have.
_VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$node": ".*", "$namespace": ".*"}


class Matcher(NamedTuple):
    label: str
    sign: str
    value: str

    def takes(self, value: str) -> bool:
        found = value == self.value if "~" not in self.sign else re.fullmatch(self.value, value) is not None
        return found is not self.sign.startswith("!")


class Selector(NamedTuple):
    metric: str
    matchers: tuple[Matcher, ...]


class Named(NamedTuple):
    """What one expression names: its selectors, and the labels by which it groups or joins."""

    selectors: tuple[Selector, ...]
    labels: frozenset[str]


def filled_in(expression: str) -> str:
    """Return the expression of a panel as Prometheus gets it; a variable that is not known stays, and is no valid PromQL."""
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def named(expression: str) -> Named:
    """Return what a valid expression names."""
    tokens = tuple(_tokens(expression))
    selectors: list[Selector] = []
    labels: set[str] = set()
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind != "name" or text in _WORDS:
            continue
        if text in _GROUPING:
            end = _end(tokens, at, ")") if following == "(" else at
            labels.update(text for kind, text in tokens[at:end] if kind == "name")
            at = end
        elif following == "{":
            end = _end(tokens, at, "}")
            selectors.append(Selector(text, tuple(_matchers(tokens[at + 1 : end]))))
            at = end
        elif following != "(" and text not in _AGGREGATIONS:
            selectors.append(Selector(text, ()))
    return Named(tuple(selectors), frozenset(labels))


def faults(expression: str, exported: Collection[Series]) -> list[str]:
    """Return what the expression names and no program exports: a metric, a label of it, or a value of that label."""
    found = named(filled_in(expression))
    wrong = [fault for selector in found.selectors for fault in _faults_of(selector, exported)]
    metrics = {selector.metric for selector in found.selectors}
    known = {label for one in exported if one.name in metrics for label in one.labels}
    return [*wrong, *(f"no metric of the expression has the label {label}" for label in sorted(found.labels - known))]


def _faults_of(selector: Selector, exported: Collection[Series]) -> Iterator[str]:
    series = [one for one in exported if one.name == selector.metric]
    if not series:
        yield f"{selector.metric} is not exported"
        return
    for one in selector.matchers:
        values = {sample.labels[one.label] for sample in series if one.label in sample.labels}
        # A value that is excluded must exist, too: else the matcher excludes nothing.
        meant = one._replace(sign=one.sign.replace("!", "=", 1).replace("==", "=")) if "!" in one.sign else one
        words = one.value.split("|") if "~" in one.sign and "." not in one.value else [one.value]
        if not values:
            yield f"{selector.metric} has no label {one.label}"
        yield from (
            f"{selector.metric} has no {one.label}={word}"
            for word in words
            if values and not any(meant._replace(value=word).takes(value) for value in values)
        )


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        assert found is not None, f"no PromQL: {expression[at:]!r}"
        at = found.end()
        if found.lastgroup is not None:
            yield found.lastgroup, found.group()


def _end(tokens: Sequence[tuple[str, str]], at: int, sign: str) -> int:
    return next(index for index in range(at, len(tokens)) if tokens[index] == ("sign", sign))


def _matchers(tokens: Sequence[tuple[str, str]]) -> Iterator[Matcher]:
    for index, (kind, text) in enumerate(tokens):
        if kind == "name":
            yield Matcher(text, tokens[index + 1][1], tokens[index + 2][1][1:-1])
