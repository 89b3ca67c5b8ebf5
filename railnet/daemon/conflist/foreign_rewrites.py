"""How often other programs change Railnet's conflist. Pure."""

from collections import deque

Signature = tuple[int, ...] | None

_WITHIN_SECONDS = 60.0
_MOST = 3  # an installer that comes, and one that goes, change it a few times


class ConflistRewrites:
    """Changes of the file that were not the daemon's own, within the last minute."""

    warning: str | None = None
    """That there are many; None if there are few."""

    def __init__(self) -> None:
        """Know no file yet."""
        self._last: Signature = ()
        self._times: deque[float] = deque()

    def look(self, signature: Signature, now: float) -> None:
        """Compare the file with the last one. `signature` is None if there is no file; `now` is a monotonic time in seconds."""
        if self._last not in ((), signature):
            self._times.append(now)
        self._last = signature
        while self._times and now - self._times[0] > _WITHIN_SECONDS:
            self._times.popleft()
        if (
            not self._times
        ):  # a warning lasts until there is none: changes at the pace of the limit would begin and end it for ever
            self.warning = None
        elif len(self._times) > _MOST and self.warning is None:
            self.warning = (
                f"another program changed or moved Railnet's CNI configuration {len(self._times)} times within a minute; Railnet keeps "
                "what others append to it, and puts back the rest. Until it does, pods may start without rails. With Cilium, set "
                "cni.exclusive to false; docs/beside-other-software.md has other programs"
            )

    def note_own(self, signature: Signature) -> None:
        """Take the daemon's own write for no change."""
        self._last = signature
