"""A pod's bytes by its VF's counters, as a scrape of the real daemon says them."""

from collections.abc import Callable
from pathlib import Path

from simnode.node import Node, Pod
from tests.node.test_bad_hardware import DEVICES, PATIENCE_SECONDS
from tests.node.test_hung_hardware import answers
from tests.waiting import until

WORD = 4  # octets
SENT = 10_000_000  # words


def counter(vf: str, name: str = "port_xmit_data") -> Path:
    (file,) = DEVICES.glob(f"{vf}/infiniband/*/ports/1/counters/{name}")
    return file


def transmitted(what: str, of: str) -> float | None:
    """Scrape; return the sum of the samples with this label, None if there is none."""
    lines = [line for line in answers("metrics").splitlines() if line.startswith(f"railnet_{what}_transmitted_bytes")]
    values = [float(line.rpartition(" ")[2]) for line in lines if of in line]
    return sum(values) if values else None


def scraped(ends: Callable[[float | None], bool], pod: Pod) -> None:
    label = f'pod="{pod.name}"'
    until(lambda: ends(transmitted("pod", label)), PATIENCE_SECONDS, f"the scrape has the bytes of {pod.name}")


def test_bytes_of_a_pod_are_its_own_and_the_rails_total_outlives_it(node: Node) -> None:
    first = node.run_pod("first", vfs=1)
    (vf,) = first.device_ids
    scraped(lambda value: value == 0, first)
    file = counter(vf)
    file.write_text(f"{int(file.read_text()) + SENT}\n")
    scraped(lambda value: value is not None and abs(value - SENT * WORD) <= SENT * WORD / 100, first)
    during = transmitted("rail", 'rail="0"')
    node.remove_pod(first)
    scraped(lambda value: value is None, first)
    after = transmitted("rail", 'rail="0"')
    pods = [node.run_pod(f"next{number}", vfs=1) for number in range(node.vfs)]
    (second,) = [pod for pod in pods if vf in pod.device_ids]
    scraped(lambda value: value == 0, second)
    at_last = transmitted("rail", 'rail="0"')
    for pod in pods:
        node.remove_pod(pod)
    file.write_text("0\n")

    assert during is not None
    assert during >= SENT * WORD
    assert during == after == at_last
