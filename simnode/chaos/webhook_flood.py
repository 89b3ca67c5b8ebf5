"""The flood of the webhook's HTTPS port in a churn, and its judgement: silent connections, half handshakes and half bodies at once.

Meanwhile an API server asks for reviews, and each must succeed. Afterwards the webhook holds no more than before. The operations on
the node are judged by `churn_operations`, which excuses none for this flood.
"""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from railnet.kernel.waiting import block_until
from simnode.chaos.churn_statistics import ChurnStatistics
from simnode.chaos.flood import Flood, flooding
from simnode.kubernetes.review_client import LIMIT_SECONDS, ReviewClient, ReviewFailed, request
from simnode.waiting import until_empty
from simnode.webhook_process import Held, Webhook

_ATTACKER = "127.0.0.2"  # a pod has another address than an API server, so it has a share of its own
# Each is more than `railnet.admission.server.connections` permits.
_SILENT, _HALF_HANDSHAKES, _HALF_BODIES = 2500, 200, 330
# What the webhook closes is opened again. Without these limits the flood would take a whole core from the churn, which may have two;
# reviews then took up to 2.5 s.
_SILENT_PER_SECOND, _HANDSHAKES_PER_SECOND = 1000, 150
_SECONDS = 5.0  # the longest flood, after all its connections have been opened once
_PAUSE_SECONDS = 0.05
_NEW = 4  # one of so many reviews is on a new connection
_MAX_MIB = 192.0  # as in `scripts/bench flood`; the container may have 256
_BACK_SECONDS = 20.0  # twice the time that the webhook gives a handshake or a body
_LOG_CHARACTERS = 2000


class WebhookFlood:
    """Floods of one webhook, one at a time, which many threads may begin.

    Args:
        webhook: a webhook that nothing has used yet.
        statistics: gets the time of each review, and the violations.
        limit_seconds: the time limit of a review.
        back_seconds: the time in which the webhook must have closed what a flood left.
    """

    def __init__(
        self,
        webhook: Webhook,
        statistics: ChurnStatistics,
        limit_seconds: float = LIMIT_SECONDS,
        back_seconds: float = _BACK_SECONDS,
    ) -> None:
        self._webhook, self._statistics, self._back_seconds = webhook, statistics, back_seconds
        self._client = ReviewClient(webhook.port, webhook.authority, limit_seconds)
        self._one = threading.Lock()
        self._rest: Held

    def warm(self) -> None:
        """Ask for one review, and note what the webhook holds after it: it loads what it needs for reviews once."""
        self._review()
        self._client.close()
        block_until(lambda: not self._webhook.held().connections, self._back_seconds, _PAUSE_SECONDS)
        self._rest = self._webhook.held()

    def flood(self, moment: float) -> bool:
        """Flood the webhook for a part `moment` of five seconds, and judge it; return False if a flood is on already."""
        if not self._one.acquire(blocking=False):
            return False
        try:
            self._flood(_SECONDS * moment)
        finally:
            self._one.release()
        return True

    def _flood(self, seconds: float) -> None:
        over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            reviews = pool.submit(self._review_until, over)
            try:
                with floods(self._webhook.port):
                    over.wait(seconds)
            finally:
                over.set()
            reviews.result()
        self._review()
        self._client.close()
        for excess in until_empty(lambda: excesses(self._rest, self._webhook.held()), self._back_seconds, 0.1):
            self._report(f"the webhook holds more after a flood than before: {excess}")

    def _review_until(self, over: threading.Event) -> None:
        number = 0
        while not over.wait(_PAUSE_SECONDS) and self._review():
            number += 1
            if number % _NEW == 0:
                self._client.close()

    def _review(self) -> bool:
        """Ask for one review; return whether it succeeded."""
        try:
            self._statistics.add_review(self._client.review())
        except ReviewFailed as failure:
            self._report(f"the webhook failed an API server: {failure}")
            return False
        return True

    def _report(self, violation: str) -> None:
        log = self._webhook.log()[-_LOG_CHARACTERS:]
        self._statistics.add_violation(f"{violation}; the webhook's log ends:\n{log}", "")


def excesses(rest: Held, now: Held) -> list[str]:
    """Return in words what a webhook holds beyond what it held at rest, and its memory if that was too much at any time."""
    more = [
        f"{after} {name}, at rest {before}"
        for name, before, after in zip(Held._fields[:3], rest[:3], now[:3], strict=True)
        if after > before
    ]
    return more if now.peak_mib <= _MAX_MIB else [*more, f"{now.peak_mib:.0f} MiB at the most, permitted {_MAX_MIB:g}"]


@contextlib.contextmanager
def floods(port: int) -> Iterator[None]:
    """Flood a port in three ways at once, until the end of the block; it begins when all connections have been opened once."""
    every = (
        Flood(port, _SILENT, per_second=_SILENT_PER_SECOND, source=_ATTACKER),
        Flood(port, _HALF_HANDSHAKES, tls="hello", per_second=_HANDSHAKES_PER_SECOND, source=_ATTACKER),
        Flood(port, _HALF_BODIES, request()[:-10], "whole", per_second=_HANDSHAKES_PER_SECOND, source=_ATTACKER),
    )
    with contextlib.ExitStack() as stack:
        for flood in every:
            stack.enter_context(flooding(flood))
        yield
