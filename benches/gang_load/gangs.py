"""Gangs that come and go: how many pods each has, where it may be, when it comes and how long it lives; all from a seed."""

import random
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

LARGEST_SHARE = 10
LIVES = (0.5, 1.5)
_REQUIRED_SHARE = 0.5


class Fabric(NamedTuple):
    """Nodes below leaf switches, all alike; the last leaf may have fewer nodes."""

    nodes: int
    leaf_nodes: int
    node_gpus: int

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of all nodes."""
        return self.nodes * self.node_gpus

    @property
    def leaf_gpus(self) -> int:
        """Return the number of GPUs of a full leaf."""
        return self.leaf_nodes * self.node_gpus

    @property
    def leaves(self) -> int:
        """Return the number of leaves."""
        return -(-self.nodes // self.leaf_nodes)


class Gang(NamedTuple):
    """A gang whose pods ask for one GPU each.

    Attributes:
        name: of its Job.
        pods: how many it has.
        required: whether it must be in one leaf; otherwise it rather is.
        comes: when it is created; seconds after the load has begun.
        lives: seconds that each pod runs; of a gang that was there before the load, until when it stays.
    """

    name: str
    pods: int
    required: bool
    comes: float
    lives: float


class Load(NamedTuple):
    """All gangs of a run.

    Attributes:
        first: gangs that fill the cluster, before the load begins.
        then: gangs that come while it lasts, in order.
        life: seconds that a gang lives on average.
    """

    first: tuple[Gang, ...]
    then: tuple[Gang, ...]
    life: float


def load(fabric: Fabric, gangs: int, seconds: float, share: float, seed: int = 1) -> Load:
    """Return gangs that ask for a share of all GPUs on average, from the first moment on.

    Args:
        fabric: where they run.
        gangs: how many come while the load lasts.
        seconds: how long it lasts.
        share: of all GPUs.
        seed: of all that is drawn.
    """
    draw = random.Random(seed)  # noqa: S311 - a load, no secret
    sizes = pods_of_gangs(fabric, gangs)
    life = share * fabric.gpus * seconds / sum(sizes)
    comes = sorted(draw.uniform(0, seconds) for _ in sizes)
    lives = [life * draw.uniform(*LIVES) for _ in sizes]
    draw.shuffle(sizes)
    then = _gangs("gang", fabric, draw, sizes, zip(comes, lives, strict=True))
    filling = _filling(fabric, share * fabric.gpus)
    draw.shuffle(filling)
    rest = (life * draw.uniform(0, 1) for _ in filling)
    first = _gangs("first", fabric, draw, filling, zip(repeat(0.0), rest, strict=False))
    return Load(tuple(first), tuple(then), life)


def pods_of_gangs(fabric: Fabric, gangs: int) -> list[int]:
    """Return the numbers of pods of so many gangs: powers of two up to a tenth of all GPUs, each of which asks for the same share of them."""
    sizes = [1 << power for power in range(max(1, fabric.gpus // LARGEST_SHARE).bit_length())]
    all_shares = sum(1 / size for size in sizes)
    wanted = [gangs / size / all_shares for size in sizes]
    counts = [int(number) for number in wanted]
    by_rest = sorted(range(len(sizes)), key=lambda index: counts[index] - wanted[index])
    for index in by_rest[: gangs - sum(counts)]:
        counts[index] += 1
    return [size for size, count in zip(sizes, counts, strict=True) for _ in range(count)]


def _filling(fabric: Fabric, gpus: float) -> list[int]:
    """Return the numbers of pods of gangs that together ask for so many GPUs and no more, distributed as all."""
    gangs = 1
    while sum(pods_of_gangs(fabric, gangs + 1)) <= gpus:
        gangs += 1
    return pods_of_gangs(fabric, gangs)


def _gangs(
    name: str, fabric: Fabric, draw: random.Random, sizes: Sequence[int], times: Iterator[tuple[float, float]]
) -> Iterator[Gang]:
    for number, (pods, (comes, lives)) in enumerate(zip(sizes, times, strict=False)):
        required = pods <= fabric.leaf_gpus and draw.random() < _REQUIRED_SHARE
        yield Gang(f"{name}-{number}", pods, required, comes, lives)
