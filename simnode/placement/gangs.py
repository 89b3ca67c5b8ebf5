"""Gangs that arrive: drawn from a seed."""

from dataclasses import dataclass
from random import Random

from simnode.placement.fabric import Fabric

MEAN_RUN_SECONDS = 110.0
VFS_OF_A_POD = (4, 8)


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang.

    Attributes:
        arrives: seconds since the start of the simulation.
        runs: seconds from the moment at which all pods are bound.
        vfs: what each rank asks for.
    """

    name: str
    arrives: float
    runs: float
    vfs: tuple[int, ...]
    priority: int = 0


def arriving(fabric: Fabric, seed: int, count: int) -> list[Gang]:
    """Draw gangs: times between arrivals and run times are exponentially distributed, sizes as the fabric says."""
    random = Random(seed)  # noqa: S311 - a simulation, repeated by its seed
    sizes, shares = zip(*fabric.pods, strict=True)
    mean_vfs = sum(size * share for size, share in fabric.pods) / sum(shares) * sum(VFS_OF_A_POD) / len(VFS_OF_A_POD)
    rate = fabric.load * fabric.vfs / (mean_vfs * MEAN_RUN_SECONDS)
    gangs, now = [], 0.0
    for number in range(count):
        now += random.expovariate(rate)
        pods = random.choices(sizes, shares)[0]
        runs = random.expovariate(1 / MEAN_RUN_SECONDS)
        vfs = (random.choice(VFS_OF_A_POD),) * pods
        has_servers = fabric.with_servers > 0 and pods > 1 and random.random() < fabric.with_servers
        gangs.append(Gang(f"gang-{number}", now, runs, _with_servers(vfs) if has_servers else vfs))
    return gangs


def _with_servers(vfs: tuple[int, ...]) -> tuple[int, ...]:
    servers = max(1, len(vfs) // 8)
    return (1,) * servers + vfs[servers:]
