"""The node's condition `RailnetRails`: whether every rail's port is ACTIVE and without errors, what the condition says, and when it is written.

Pure: from what is seen of the ports at moments that are passed in, to a condition, the time of the next write, and the node's taints.

Source: kubernetes/api, core/v1 NodeCondition and Taint.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

TYPE = "RailnetRails"
TAINT = "railnet.io/rails-not-active"
_EFFECT = "NoSchedule"
_MOST_RAILS = 8  # of which the message speaks in full

Status = Literal["True", "False", "Unknown"]


class ConditionLimits(NamedTuple):
    """The limits by which a port is judged, and the pauses between calls of the API server; all but `flaps` in seconds.

    Attributes:
        down: how long a port is not ACTIVE until the condition says so; a subnet manager that starts takes some seconds.
        up: how long a port is ACTIVE until an incident is over.
        flaps: as many losses within `window` are an incident, however short each of them was.
        window: as `flaps` says.
        quiet: at least between two tries to write.
        wording: between two writes that change words and counts alone.
        heartbeat: between two writes that change nothing but the time.
    """

    down: float = 10.0
    up: float = 60.0
    flaps: int = 3
    window: float = 60.0
    quiet: float = 10.0
    wording: float = 60.0
    heartbeat: float = 300.0


LIMITS = ConditionLimits()


class Moment(NamedTuple):
    """A moment on two clocks: seconds of one that only goes forward, by which all is decided; and the time that people read."""

    seconds: float
    time: datetime


class Incident(NamedTuple):
    """A rail that counts as not ACTIVE.

    Attributes:
        since: its first loss.
        earlier: whether the port was not ACTIVE when it was first seen, so that it was lost at `since` or earlier.
        losses: how often the port ceased to be ACTIVE.
        flaps: whether it ceased to be ACTIVE so often within a short time that it flaps.
        trouble: why it was not ACTIVE the last time, and what to do.
    """

    since: Moment
    earlier: bool
    losses: int
    flaps: bool
    trouble: str


@dataclass(frozen=True, slots=True)
class RailHistory:
    """The daemon saw this of one rail.

    Attributes:
        trouble: why its port is not ACTIVE, and what to do; None if it is ACTIVE.
        changed: when that began, or when the rail was first seen.
        first: whether nothing has changed since the rail was first seen.
        losses: the latest losses, at most as many as make a flap.
        incident: None while the rail counts as ACTIVE.
    """

    trouble: str | None
    changed: Moment
    first: bool = True
    losses: tuple[Moment, ...] = ()
    incident: Incident | None = None


Histories = Mapping[int, RailHistory]


class RailError(NamedTuple):
    """Something that is wrong with a rail's port though it is ACTIVE.

    Attributes:
        reason: the condition's reason if nothing else is wrong.
        name: the counter, or the kind of the kernel's message.
        severe: whether the condition is False for it.
        text: what is wrong since when, and what to do.
    """

    reason: str
    name: str
    severe: bool
    text: str


Errors = Mapping[int, Sequence[RailError]]
NO_ERRORS: Errors = {}


@dataclass(frozen=True, slots=True)
class Condition:
    """The content of the condition. `rails` are those that are not ACTIVE or have severe errors; they are not written."""

    status: Status
    reason: str
    message: str
    rails: frozenset[int] = frozenset()

    @property
    def key(self) -> tuple[Status, str, frozenset[int]]:
        """The part that is written soon after it has changed; other words can wait."""
        return self.status, self.reason, self.rails


class Written(NamedTuple):
    """The API server has this: the condition, and the second of its write."""

    condition: Condition
    seconds: float


class RailNews(NamedTuple):
    """That a rail began or ceased to count as not ACTIVE; `text` names the rail."""

    rail: int
    reason: str
    text: str
    warning: bool


def seen(
    before: Histories, ports: Mapping[int, str | None], now: Moment, limits: ConditionLimits = LIMITS
) -> dict[int, RailHistory]:
    """Return the histories after a look at the ports: by rail, why its port is not ACTIVE, and what to do; None if it is.

    A rail that is not among the ports is forgotten.
    """
    return {
        rail: _judged(_noted(before.get(rail), trouble, now, limits), now, limits) for rail, trouble in ports.items()
    }


def condition(
    rails: Histories, status: Status | None, now: Moment, limits: ConditionLimits = LIMITS, errors: Errors = NO_ERRORS
) -> Condition | None:
    """Return what the condition should say; None if what the API server has should stay for now.

    Args:
        rails: what was seen.
        status: the status that the API server has; None if it has none. A daemon that has just started does not know how long a port
            has been ACTIVE: if the status is False, it waits before it says True.
        now: the moment of the last look.
        limits: when a port counts as what.
        errors: what is wrong with ports though they are ACTIVE, by rail. Those of a rail that is not among `rails` do not count.
    """
    incidents = {rail: history for rail, history in rails.items() if history.incident is not None}
    severe = _of_rails(errors, rails, severe=True)
    if incidents:
        flapping = all(history.incident is not None and history.incident.flaps for history in incidents.values())
        message = "; ".join((*_sentences(incidents), *_said(severe)))
        return Condition(
            "False", "RailFlaps" if flapping else "RailNotActive", message, frozenset({*incidents, *dict(severe)})
        )
    if severe:
        reason = min(error.reason for _, error in severe)
        return Condition("False", reason, "; ".join(_said(severe)), frozenset(dict(severe)))
    hold = limits.up if status == "False" else 0.0
    if any(history.trouble is not None or now.seconds - history.changed.seconds < hold for history in rails.values()):
        return None
    if not rails:
        return Condition("True", "NoRails", "this node has no rail that pods can have")
    active = f"{len(rails)} of {len(rails)} rails are ACTIVE"
    if slight := _of_rails(errors, rails, severe=False):
        return Condition("True", "RailsDegraded", "; ".join((active, *_said(slight))))
    return Condition("True", "RailsActive", active)


def unknown(why: str) -> Condition:
    """Return what the condition says while the numbers of the rails are not known."""
    return Condition("Unknown", "RailsNotKnown", why)


def next_judgement(rails: Histories, status: Status | None, now: Moment, limits: ConditionLimits = LIMITS) -> float:
    """Return the next second at which the histories may say something else if no port changes; infinity if they never do."""
    due = [_due(history, status, limits) for history in rails.values()]
    return min((second for second in due if second > now.seconds), default=float("inf"))


def next_write(wanted: Condition | None, written: Written | None, limits: ConditionLimits = LIMITS) -> float:
    """Return the second from which on the wanted condition may be written; infinity if nothing is to be written."""
    if written is None:
        return float("inf") if wanted is None else 0.0
    if wanted is None or wanted == written.condition:
        pause = limits.heartbeat
    elif wanted.key == written.condition.key:
        pause = limits.wording
    else:
        pause = limits.quiet
    return written.seconds + pause


def news(before: Histories, after: Histories) -> list[RailNews]:
    """Return which rails began or ceased to count as not ACTIVE, or began to flap, between two looks."""
    rail_news = []
    for rail, history in sorted(after.items()):
        was, incident = before[rail].incident if rail in before else None, history.incident
        if incident is not None and (was is None or incident.flaps != was.flaps):
            rail_news.append(
                RailNews(rail, f"Railnet{_reason(incident)}", _sentence(rail, history, incident), warning=True)
            )
        elif incident is None and was is not None:
            text = f"rail {rail} is ACTIVE again: it was lost {_times(was.losses)} since {time_text(was.since)}"
            rail_news.append(RailNews(rail, "RailnetRailActive", text, warning=False))
    return rail_news


def error_news(before: Errors, after: Errors) -> list[RailNews]:
    """Return what began to be wrong with rails that are ACTIVE, and what no longer is, between two looks."""
    old, new = (
        {(rail, error.reason, error.name): error for rail, of_rail in errors.items() for error in of_rail}
        for errors in (before, after)
    )
    new_errors = [
        RailNews(rail, f"Railnet{reason}", f"rail {rail}: {new[rail, reason, name].text}", warning=True)
        for rail, reason, name in sorted(new.keys() - old.keys())
    ]
    over = [
        RailNews(rail, f"Railnet{reason}Over", f"rail {rail}: {name} is over", warning=False)
        for rail, reason, name in sorted(old.keys() - new.keys())
    ]
    return new_errors + over


def taints(node_taints: Sequence[Any], *, wanted: bool) -> list[Any] | None:
    """Return the taints of a node with Railnet's own, or without it; None if nothing is to be changed. Other taints stay as they are."""
    ours = [taint for taint in node_taints if isinstance(taint, dict) and taint.get("key") == TAINT]
    own = [{"key": TAINT, "effect": _EFFECT}] if wanted else []
    if [{"key": taint.get("key"), "effect": taint.get("effect")} for taint in ours] == own:
        return None
    return [taint for taint in node_taints if taint not in ours] + own


def _noted(before: RailHistory | None, trouble: str | None, now: Moment, limits: ConditionLimits) -> RailHistory:
    if before is None:
        return RailHistory(trouble, now)
    if (before.trouble is None) == (trouble is None):
        return replace(before, trouble=trouble, incident=_explained(before.incident, trouble))
    if trouble is None:
        return replace(before, trouble=None, changed=now, first=False)
    losses = (*before.losses, now)[-limits.flaps :]
    incident = before.incident
    if incident is not None:
        incident = incident._replace(
            losses=incident.losses + 1, flaps=incident.flaps or _flaps(losses, limits), trouble=trouble
        )
    return RailHistory(trouble, now, False, losses, incident)


def _explained(incident: Incident | None, trouble: str | None) -> Incident | None:
    return incident if incident is None or trouble is None else incident._replace(trouble=trouble)


def _judged(rail: RailHistory, now: Moment, limits: ConditionLimits) -> RailHistory:
    lasted = now.seconds - rail.changed.seconds
    if rail.trouble is None:
        is_over = rail.incident is not None and lasted >= limits.up
        return replace(rail, incident=None, losses=()) if is_over else rail
    flaps = _flaps(rail.losses, limits)
    if rail.incident is not None or not (flaps or lasted >= limits.down):
        return rail
    recent = tuple(loss for loss in rail.losses if flaps or loss == rail.changed) or (rail.changed,)
    incident = Incident(recent[0], rail.first, len(recent), flaps, rail.trouble)
    return replace(rail, incident=incident)


def _flaps(losses: Sequence[Moment], limits: ConditionLimits) -> bool:
    return len(losses) == limits.flaps and losses[-1].seconds - losses[0].seconds <= limits.window


def _due(rail: RailHistory, status: Status | None, limits: ConditionLimits) -> float:
    if rail.trouble is not None:
        return rail.changed.seconds + limits.down if rail.incident is None else float("inf")
    waits = rail.incident is not None or status == "False"
    return rail.changed.seconds + limits.up if waits else float("inf")


def _sentences(rails: Histories) -> Iterator[str]:
    numbers = sorted(rails)
    for rail in numbers[:_MOST_RAILS]:
        incident = rails[rail].incident
        if incident is not None:
            yield _sentence(rail, rails[rail], incident)
    if more := numbers[_MOST_RAILS:]:
        yield f"and rails {', '.join(map(str, more))}"


def _sentence(rail: int, history: RailHistory, incident: Incident) -> str:
    since = time_text(incident.since) + (" or earlier" if incident.earlier else "")
    if incident.flaps:
        return f"rail {rail} flaps: lost {_times(incident.losses)} since {since}; the last time {incident.trouble}"
    often = f" (lost {_times(incident.losses)})" if incident.losses > 1 else ""
    back = "" if history.trouble is not None else f" (ACTIVE again since {time_text(history.changed)})"
    return f"rail {rail} is not ACTIVE since {since}{often}{back}: {incident.trouble}"


def _of_rails(errors: Errors, rails: Histories, *, severe: bool) -> list[tuple[int, RailError]]:
    return [
        (rail, error)
        for rail, of_rail in sorted(errors.items())
        if rail in rails
        for error in of_rail
        if error.severe == severe
    ]


def _said(errors: Sequence[tuple[int, RailError]]) -> Iterator[str]:
    for rail, error in errors[:_MOST_RAILS]:
        yield f"rail {rail}: {error.text}"
    if (more := len(errors) - _MOST_RAILS) > 0:
        yield f"and {more} more"


def _reason(incident: Incident) -> str:
    return "RailFlaps" if incident.flaps else "RailNotActive"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def time_text(moment: Moment) -> str:
    """Return a moment as messages show it."""
    return moment.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
