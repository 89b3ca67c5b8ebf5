"""What is wrong with values of the node's configuration that are right by themselves: they disagree with each other. Pure.

Not here: whether one value is right (`railnet.value_readers`), and which key has which reader (`railnet.configuration`).
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from deviceplugin.pool_selection import Pool
from railnet.value_readers import Fault, shown, wrong
from railnet.vf.permitted_networks import Limit, Network, SliceIpam, StaticIpam, StickyIpam
from railnet.vf.provision import Provision, ProvisionBySelector

_WITH_RANGE = (SliceIpam, StaticIpam, StickyIpam)


def conflicts(
    pools: Sequence[Pool],
    provision: Sequence[Provision | ProvisionBySelector],
    networks: Mapping[str, Network],
    limits: Mapping[str, Limit],
) -> Iterator[Fault]:
    """Yield what is wrong, as it is found: a long file may have very many."""
    yield from _check_pools(pools)
    yield from _check_provision(provision)
    yield from _check_ranges(networks)
    yield from _check_limits(limits, networks, [pool.resource for pool in pools])


def _check_pools(pools: Sequence[Pool]) -> Iterator[Fault]:
    if not pools:
        yield wrong([], "pools", "a list of at least one pool (leave the key out for the default pool)")
    yield from _check_distinct("pools", "resource", dict(enumerate(pool.resource for pool in pools)))


def _check_provision(provision: Sequence[Provision | ProvisionBySelector]) -> Iterator[Fault]:
    named = {position: str(entry.pf) for position, entry in enumerate(provision) if isinstance(entry, Provision)}
    yield from _check_distinct("provision", "pf", named)


def _check_distinct(path: str, key: str, values: Mapping[int, str]) -> Iterator[Fault]:
    """Yield a fault for each value that an earlier position of the list has."""
    positions: dict[str, int] = {}
    for position, value in values.items():
        first = positions.setdefault(value, position)
        if first != position:
            where = f"{path}[{position}].{key}"
            yield Fault(where, f"{where} is {shown(value)}, as {path}[{first}].{key} is; it should be listed once")


def _check_limits(
    limits: Mapping[str, Limit], networks: Collection[str], resources: Collection[str]
) -> Iterator[Fault]:
    for namespace, limit in limits.items():
        yield from _check_known(f"limits.{namespace}.networks", limit.networks, "networks", sorted(networks))
        yield from _check_known(f"limits.{namespace}.pools", limit.pools or (), "pools", resources)


def _check_known(path: str, names: Collection[str], defined_by: str, known: Collection[str]) -> Iterator[Fault]:
    for position, name in enumerate(names):
        if name not in known:
            yield wrong(name, f"{path}[{position}]", f"a name that '{defined_by}' defines: {', '.join(known)}")


def _check_ranges(networks: Mapping[str, Network]) -> Iterator[Fault]:
    """Make sure that no two networks give the same addresses: each network divides its range in its own way."""
    for network in networks.values():
        if isinstance(network.ipam, StickyIpam):
            yield from _check_parts(network.name, network.ipam)
    ranges = [(network, network.ipam.range) for network in networks.values() if isinstance(network.ipam, _WITH_RANGE)]
    for (network, first), (other, second) in itertools.combinations(ranges, 2):
        if isinstance(network.ipam, StaticIpam) and isinstance(other.ipam, StaticIpam):
            continue  # the authors of pods divide these ranges
        if first is not None and second is not None and first.overlaps(second):
            yield Fault(
                f"networks.{other.name}.ipam.range",
                f"networks.{network.name}.ipam.range {first} and networks.{other.name}.ipam.range {second} overlap; "
                f"they should not (a network without `range` has {SliceIpam().range})",
            )


def _check_parts(name: str, ipam: StickyIpam) -> Iterator[Fault]:
    bits = (ipam.rails - 1).bit_length()
    if ipam.range.max_prefixlen - ipam.range.prefixlen - bits < 2:  # noqa: PLR2004 - the first and last address are no host's
        where = f"networks.{name}.ipam.range"
        yield Fault(
            where,
            f"{where} {ipam.range} is too small for {ipam.rails} rails: it should leave 2 bits for addresses at least",
        )
