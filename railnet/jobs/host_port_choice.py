"""Chooses the host port of a pod in host-network mode: a range, the part of it that one of several choosers has, and the choice.

Pure: what is known of ports in, a port out. Several replicas choose at the same moment, so each has ports of its own: every n-th of
the range. A replica takes its lowest free port. When it has none left it takes the highest of another's, as long as so many are free that
the other replica cannot be about to choose the same.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from railnet.errors import Misconfigured

_LOWEST, _HIGHEST = 1024, 65535  # below 1024 a process needs a privilege
# How many choices of another replica may not be known here yet: each is a pod whose review was answered within the last second or so.
_UNKNOWN = 64


class PortRange(NamedTuple):
    """The ports from `first` to `last`, which counts."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    @property
    def size(self) -> int:
        """The number of ports."""
        return self.last - self.first + 1


class PortShare(NamedTuple):
    """The ports of one of several choosers: those whose distance from the range's first port leaves the remainder `place`."""

    place: int = 0
    choosers: int = 1


def parse(text: str) -> PortRange:
    """Read a range such as `20000-29999`.

    Raises:
        Misconfigured: the text is no range, the range is empty, or a port of it may not be used.
    """
    first, dash, last = text.partition("-")
    if not (dash and _is_port(first) and _is_port(last)):
        raise Misconfigured(f"the range of host ports is {text!r:.40}; it should be two ports, such as 20000-29999")
    ports = PortRange(int(first), int(last))
    if ports.first > ports.last:
        raise Misconfigured(
            f"the range of host ports {ports} is empty: its first port is above its last; turn them round"
        )
    if ports.first < _LOWEST or ports.last > _HIGHEST:
        raise Misconfigured(f"the range of host ports {ports} is not within {_LOWEST}-{_HIGHEST}")
    return ports


def choose(
    ports: PortRange, taken: Sequence[Collection[int]], resting: Mapping[int, float], share: PortShare
) -> int | None:
    """Choose a port; None if the chooser has none to give.

    Args:
        ports: the range.
        taken: the ports that live pods have, and those that were given a moment ago.
        resting: ports that a pod had until recently, and when that was. Peers may still send to them, so they are given last.
        share: the chooser's ports.
    """
    own = range(ports.first + share.place, ports.last + 1, share.choosers)
    free = set(own).difference(*taken)
    if rested := free.difference(resting):
        return min(rested)
    borrowed = None if share.choosers == 1 else _borrowed(ports, taken, resting)
    return borrowed or min(free, key=lambda port: (resting[port], port), default=None)


def _borrowed(ports: PortRange, taken: Sequence[Collection[int]], resting: Mapping[int, float]) -> int | None:
    free = set(range(ports.first, ports.last + 1)).difference(*taken, resting)
    return max(free) if len(free) > _UNKNOWN else None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(_HIGHEST))
