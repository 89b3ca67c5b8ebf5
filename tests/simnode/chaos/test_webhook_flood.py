"""The flood of a webhook in a churn: reviews go on and its connections are back; a webhook that fails is reported."""

import signal
import threading
from collections.abc import Iterator

import pytest

from simnode import webhook_process
from simnode.chaos.churn_statistics import ChurnStatistics
from simnode.chaos.webhook_flood import WebhookFlood, excesses
from simnode.kubernetes.review_client import ReviewClient
from simnode.waiting import wait_until
from simnode.webhook_process import Held, Webhook, WebhookFailed

REST = Held(connections=0, descriptors=8, threads=1, peak_mib=69.0)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with webhook_process.running() as webhook:
        yield webhook


@pytest.fixture
def statistics() -> ChurnStatistics:
    return ChurnStatistics(seed=7)


def in_a_thread(flood: WebhookFlood, moment: float = 0.0) -> threading.Thread:
    thread = threading.Thread(target=flood.flood, args=(moment,), daemon=True)
    thread.start()
    return thread


def test_reviews_go_on_while_the_webhook_is_flooded_and_it_holds_no_more_after_it(
    webhook: Webhook, statistics: ChurnStatistics
) -> None:
    flood = WebhookFlood(webhook, statistics)
    flood.warm()
    before = webhook.held()
    thread = in_a_thread(
        flood, 1.0
    )  # longer than a review may take, so that a review that waits for the flood's end is late
    # More than the webhook permits to one kind of connections: the flood has all kinds.
    wait_until(lambda: webhook.held().descriptors > before.descriptors + 300, 60, "the flood")
    thread.join()

    assert statistics.violations == []
    assert statistics.summary(1.0)["reviews"]["count"] > 10
    assert webhook.held()[:3] == before[:3]


def test_second_flood_at_the_same_time_does_nothing(webhook: Webhook, statistics: ChurnStatistics) -> None:
    flood = WebhookFlood(webhook, statistics)
    flood.warm()
    thread = in_a_thread(flood)
    wait_until(lambda: webhook.held().connections > 0, 60, "the first flood")

    assert not flood.flood(0.0)
    thread.join()


def test_webhook_that_does_not_answer_is_reported_and_so_are_connections_that_stay(
    webhook: Webhook, statistics: ChurnStatistics
) -> None:
    flood = WebhookFlood(webhook, statistics, limit_seconds=1, back_seconds=1)
    flood.warm()
    webhook.process.send_signal(signal.SIGSTOP)
    try:
        flood.flood(0.0)
    finally:
        webhook.process.send_signal(signal.SIGCONT)

    first, *_, last = statistics.violations
    assert first.startswith("the webhook failed an API server: a review got no answer: TimeoutError")
    assert "connections, at rest 0" in last


def test_one_connection_that_stays_is_reported(webhook: Webhook, statistics: ChurnStatistics) -> None:
    flood = WebhookFlood(webhook, statistics, back_seconds=5)
    flood.warm()
    other = ReviewClient(webhook.port, webhook.authority)
    thread = in_a_thread(flood)
    while thread.is_alive():  # the webhook may close it for another, so it is made again
        other.review()
        thread.join(0.05)
    other.close()

    found = [line.partition(";")[0] for line in statistics.violations]
    assert "the webhook holds more after a flood than before: 1 connections, at rest 0" in found


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (REST, []),
        (REST._replace(descriptors=7, peak_mib=192.0), []),
        (REST._replace(connections=2), ["2 connections, at rest 0"]),
        (REST._replace(descriptors=9), ["9 descriptors, at rest 8"]),
        (REST._replace(threads=2), ["2 threads, at rest 1"]),
        (REST._replace(peak_mib=193.0), ["193 MiB at the most, permitted 192"]),
    ],
    ids=["as at rest", "less", "connections", "descriptors", "threads", "memory"],
)
def test_what_a_webhook_holds_beyond_its_rest_is_said(now: Held, said: list[str]) -> None:
    assert excesses(REST, now) == said


def run_and_kill() -> None:
    with webhook_process.running() as webhook:
        webhook.process.kill()
        webhook.process.wait()


def test_webhook_that_is_killed_is_reported_at_the_end() -> None:
    with pytest.raises(WebhookFailed, match="the webhook's status is -9"):
        run_and_kill()
