"""The facts that a leader remembers of a gang beside its pods. The next leader begins without them, and reaches the same end.

They are one immutable value. Times are on the leader's own clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from railnet.gangs.life_cycle import GangEvent, GangState
from railnet.gangs.placement.gang import Domain, GangKey
from railnet.gangs.placement_annotation import Evicted
from railnet.gangs.planning_result import Asked


class Eviction(NamedTuple):
    """An eviction that is due.

    Attributes:
        attempt: which try the placement is that has failed.
        text: what is said of it; empty if nothing is.
        domains: those in which it has failed.
        rests_until: until when the domains cool down, or the gates stay closed.
        event: whether it is done; None if it is not known yet what it costs, and nothing else depends on it.
        obstacle: why the gang stays, a clause.
    """

    why: Evicted
    attempt: int
    text: str = ""
    domains: Sequence[Domain] = ((),)
    rests_until: float = 0.0
    event: GangEvent | None = None
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class BegunStage:
    """What belongs to a gang that has begun.

    Attributes:
        incomplete_since: since when members are to come; None if none are.
        lapsed: whether their room was given back.
        split_since: since when a part of the gang has no room beside the other; None if it has.
        whole: whether all members have existed since it began.
    """

    incomplete_since: float | None = None
    lapsed: bool = False
    split_since: float | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class EvictingStage:
    """Of a gang that is evicted: why, and since when."""

    why: Evicted
    since: float


@dataclass(frozen=True, slots=True)
class Tries:
    """Which try the next placement is; until when domains that failed are left out; until when gates stay closed while members are missing."""

    attempt: int = 1
    cooling: Mapping[Domain, float] = field(default_factory=dict)
    closed_until: float = 0.0

    def after(self, eviction: Eviction, now: float) -> "Tries":
        """Return the tries of a gang that is evicted."""
        attempt = eviction.attempt + 1
        match eviction.why:
            case Evicted.PREEMPTED:
                return self
            case Evicted.SPLIT:
                return replace(self, attempt=attempt)
            case Evicted.LAPSED:
                return replace(self, attempt=attempt, closed_until=eviction.rests_until)
            case Evicted.FAILED:
                failed = {domain: eviction.rests_until for domain in eviction.domains if domain}
                still = {domain: until for domain, until in self.cooling.items() if until > now}
                return replace(self, attempt=attempt, cooling=still | failed)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When a member was last seen for the first time, and how many there were then."""

    newest: float = 0.0
    count: int = 0

    def with_members(self, count: int, now: float) -> "Arrivals":
        """Return the arrivals when so many members are seen."""
        return self if count == self.count else Arrivals(now if count > self.count else self.newest, count)


@dataclass(frozen=True, slots=True)
class News:
    """What was said of a gang.

    Attributes:
        opened: whether gates were opened since the last event about its placement.
        placed: what that event was about: the domains, the try, and whether members were missing; None before the first one.
        waiting, waiting_at: the last event of a gang that waits, and when that was.
    """

    opened: bool = False
    placed: tuple[frozenset[Domain], int, bool] | None = None
    waiting: str = ""
    waiting_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class GangMemory:
    """The facts about one gang.

    Attributes:
        stage: what belongs to its state; None while no member has begun.
        queued: when an older gang of its namespace last got its place, in seconds since 1970.
        asked: the owner whose object was read; `asked_at` when.
    """

    stage: BegunStage | EvictingStage | None = None
    tries: Tries = Tries()
    arrivals: Arrivals = Arrivals()
    news: News = News()
    queued: float = 0.0
    asked: Asked | None = None
    asked_at: float = 0.0

    @property
    def begun(self) -> BegunStage:
        """What is remembered of a gang that has begun."""
        return self.stage if isinstance(self.stage, BegunStage) else BegunStage()

    def state(self, now: float, *, has_begun: bool) -> GangState:
        """Return the gang's state; `has_begun` says whether a member has a place or a node."""
        if isinstance(self.stage, EvictingStage):
            return GangState.EVICTING
        if has_begun:
            if self.begun.lapsed:
                return GangState.LAPSED
            return GangState.PLACED if self.begun.incomplete_since is None else GangState.INCOMPLETE
        if self.tries.closed_until > now:
            return GangState.CLOSED
        return GangState.COOLING if self.cooling(now) else GangState.WAITING

    def entering(self, state: GangState, now: float, eviction: Eviction | None) -> "GangMemory":
        """Return what is remembered when the gang enters a state, or stays in it; `eviction` is the one that is due."""
        match state:
            case GangState.WAITING | GangState.COOLING | GangState.CLOSED:
                is_same = self.stage is None and self.news.placed is None
                return self if is_same else replace(self, stage=None, news=replace(self.news, placed=None))
            case GangState.EVICTING:
                if eviction is None or isinstance(self.stage, EvictingStage):
                    return self
                return replace(self, stage=EvictingStage(eviction.why, now), tries=self.tries.after(eviction, now))
            case GangState.PLACED:
                return self._in_stage(replace(self.begun, incomplete_since=None, lapsed=False))
            case GangState.INCOMPLETE | GangState.LAPSED:
                since = now if self.begun.incomplete_since is None else self.begun.incomplete_since
                return self._in_stage(replace(self.begun, incomplete_since=since, lapsed=state is GangState.LAPSED))

    def with_all_members(self) -> "GangMemory":
        """Return what is remembered of a gang that has begun when all its members exist."""
        return self._in_stage(replace(self.begun, whole=True))

    def cooling(self, now: float) -> dict[Domain, float]:
        """Return the domains that cool down, each with the time until then."""
        return {domain: until for domain, until in self.tries.cooling.items() if until > now}

    def rests_until(self) -> float:
        """Return until when something is remembered that counts although the gang has no pods; a past moment if nothing is."""
        return max([self.tries.closed_until, *self.tries.cooling.values()])

    def _in_stage(self, stage: BegunStage) -> "GangMemory":
        return self if stage == self.stage else replace(self, stage=stage)


class GangMemories(dict[GangKey, GangMemory]):
    """The facts about each gang; of one without an entry there are none.

    Attributes:
        open: the gangs that may need something.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: set[GangKey] = set()

    def __missing__(self, _: GangKey) -> GangMemory:
        """Return what is remembered of a gang without an entry."""
        return GangMemory()
