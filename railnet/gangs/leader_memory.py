"""The facts that a leader remembers of a gang beside its pods. The next leader begins without it, and reaches the same end."""

from dataclasses import dataclass, field

from railnet.gangs.placement.gang import Domain
from railnet.gangs.placement_annotation import Evicted
from railnet.gangs.planning_result import Asked


@dataclass(slots=True)
class GangMemory:
    """The facts about one gang; times are on the leader's own clock.

    Attributes:
        attempt: which try the next placement is.
        cooling: domains that failed, each with the time until which it is not tried again.
        evicting: why the gang's pods are evicted; None if they are not.
        evicting_since: since when.
        incomplete_since: since when it is placed while members are still to come; None if it is not.
        whole: whether all its members have existed since it began.
        lapsed: whether the room for members to come was given back.
        closed_until: until when its gates are not opened before all members exist: it had them open, and members did not come.
        queued: when an older gang of its namespace last got its place, in seconds since 1970.
        newest: when a member was last seen for the first time.
        seen: how many members there were then.
        announces: whether gates were opened since the last event about its placement.
        announced: what that event was about: the domains, the try, and whether all members existed; None before the first one.
        waiting_text, waiting_said: the last event of a gang that waits, and when that was.
        made: how many pods its job makes; 0 if that is not known.
        asked: the owner whose object was read; `asked_at` when.
    """

    attempt: int = 1
    cooling: dict[Domain, float] = field(default_factory=dict)
    evicting: Evicted | None = None
    evicting_since: float = 0.0
    incomplete_since: float | None = None
    whole: bool = False
    lapsed: bool = False
    closed_until: float = 0.0
    queued: float = 0.0
    newest: float = 0.0
    seen: int = 0
    announces: bool = False
    announced: tuple[frozenset[Domain], int, bool] | None = None
    waiting_text: str = ""
    waiting_said: float = float("-inf")
    made: int = 0
    asked: Asked | None = None
    asked_at: float = 0.0

    def excluded(self, now: float) -> frozenset[Domain]:
        """Return the domains that cool down."""
        self.cooling = {domain: until for domain, until in self.cooling.items() if until > now}
        return frozenset(self.cooling)

    def lapses(self, attempt: int, until: float) -> None:
        """Take in that members did not come to a gang whose gates were opened before they existed."""
        self.attempt = attempt + 1
        self.closed_until = until

    def rests_until(self, now: float) -> float:
        """Return until when something is remembered that counts although the gang has no pods; a past moment if nothing is."""
        self.excluded(now)
        return max([self.closed_until, *self.cooling.values()])

    def fails(self, attempt: int, domain: Domain, until: float) -> None:
        """Take in that a placement has failed: its domain cools down."""
        self.attempt = attempt + 1
        if domain:
            self.cooling[domain] = until
