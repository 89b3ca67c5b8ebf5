"""Requirements for a node's labels, as in a label selector, or in a pod's node affinity.

Source: kubernetes/api, meta/v1 LabelSelectorRequirement and core/v1 NodeSelectorRequirement; k8s.io/apimachinery, labels/selector.go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_NUMBER = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS, _LEAST_NUMBER = 63, -(1 << 63)  # of a label's value; of Go's int64


class Comparison(StrEnum):
    """The comparison of a label with the values of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement for one label."""

    key: str
    comparison: Comparison
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels are as required. A label that is missing is not in any list (labels/selector.go, Matches)."""
        value = labels.get(self.key)
        match self.comparison:
            case Comparison.IN:
                return value in self.values
            case Comparison.NOT_IN:
                return value not in self.values
            case Comparison.EXISTS:
                return value is not None
            case Comparison.DOES_NOT_EXIST:
                return value is None
            case Comparison.GREATER:
                return self._is_beyond(value, 1)
            case Comparison.LESS:
                return self._is_beyond(value, -1)

    def _is_beyond(self, value: str | None, sign: int) -> bool:
        """Compare as whole numbers; what is no number is never greater or less. An operator's template, which nothing checks, may have any."""
        here, there = _number(value), [_number(text) for text in self.values]
        return here is not None and len(there) == 1 and there[0] is not None and sign * here > sign * there[0]


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Requirements that must all hold."""

    requirements: tuple[Requirement, ...]

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels are as required."""
        return all(requirement.holds(labels) for requirement in self.requirements)


def _number(text: object) -> int | None:
    """Read a number as Go's strconv.ParseInt does: `1_000` and numbers of other alphabets are none."""
    if not isinstance(text, str) or len(text) > _MOST_DIGITS or _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if _LEAST_NUMBER <= number <= -_LEAST_NUMBER - 1 else None
