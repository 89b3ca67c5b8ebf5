"""Compare a sandbox with its record, and describe the first difference. Pure."""

from dataclasses import dataclass

from railnet.vf.inventory import DeviceNode, LinkLayer, RdmaDevice
from railnet.vf.record import Attachment, Netns, Record
from railnet.vf.steps import IpInterface, Ipv4Settings, RailRouting, Route, Rule


@dataclass(frozen=True, slots=True)
class SandboxLink:
    """The state of a VF's netdev in a sandbox. `link_layer` is None if it is neither InfiniBand nor Ethernet.

    `mtu` is in bytes. `up` is the administrative state (IFF_UP), not the carrier: an unplugged cable is no difference from
    the record. `rules` are those of Railnet's priority in the link's namespace, and `routes` are those through the link, by table;
    they are read only where a sandbox may have several rails.
    """

    ifname: str
    link_layer: LinkLayer | None
    mtu: int
    up: bool
    addresses: frozenset[IpInterface]
    ipv4: Ipv4Settings | None = None
    rules: frozenset[Rule] = frozenset()
    routes: frozenset[tuple[int, Route]] = frozenset()


def of_sandbox(record: Record, netns: Netns | None) -> str | None:
    """Compare a record's stage and namespace. `netns` is the namespace at the sandbox's path, None if it is gone."""
    if record.stage != "attached":
        return f"the sandbox's rails are not attached: its record is {record.stage!r}"
    if netns is None:
        return f"the sandbox's network namespace {record.netns.path} is gone"
    if (netns.dev, netns.inode) != (record.netns.dev, record.netns.inode):
        return f"{netns.path} is another network namespace ({netns.inode}) than the one with the rails ({record.netns.inode})"
    return None


def of_rail(recorded: Attachment, link: SandboxLink | None, rdma: RdmaDevice | None) -> str | None:
    """Compare one rail. `link` is its VF's netdev in the sandbox, `rdma` its RDMA device; each is None if it is absent.

    An addition to the link, such as a further address, is no difference.
    """
    if link is None:
        return f"{recorded.ifname}: the netdev of VF {recorded.vf} is not in the sandbox"
    facts: list[tuple[str, object, object]] = [
        ("name", recorded.ifname, link.ifname),
        ("link layer", recorded.link_layer, link.link_layer),
        ("MTU", recorded.mtu, link.mtu),
        ("state", "up", "up" if link.up else "down"),
        *(("address", address, address if address in link.addresses else None) for address in recorded.addresses),
        *(_routing_facts(recorded.routing, link) if recorded.routing is not None else ()),
        *(_rdma_facts(recorded, rdma) if recorded.rdma is not None else ()),
    ]
    for fact, recorded_value, actual_value in facts:
        if actual_value != recorded_value:
            shown = "missing" if actual_value is None else f"{actual_value}"
            return f"{recorded.ifname} (VF {recorded.vf}): its {fact} is {shown}; it should be {recorded_value}"
    return None


def _routing_facts(recorded: RailRouting, link: SandboxLink) -> list[tuple[str, object, object]]:
    """Return the facts that keep several rails apart."""
    ipv4 = {} if link.ipv4 is None else link.ipv4._asdict()
    settings = [(name, value, ipv4.get(name)) for name, value in recorded.ipv4._asdict().items()]
    rules = [(f"rule from {rule.source}", f"table {rule.table}", rule in link.rules) for rule in recorded.rules]
    routes = [
        (f"route to {route.destination}", f"in table {recorded.table}", (recorded.table, route) in link.routes)
        for route in recorded.routes
    ]
    return [*settings, *((fact, place, place if there else None) for fact, place, there in (*rules, *routes))]


def _rdma_facts(recorded: Attachment, rdma: RdmaDevice | None) -> list[tuple[str, object, object]]:
    """Return the facts that containers depend on. They change when the RDMA device's driver is bound again."""
    if rdma is None:
        return [("RDMA device", recorded.rdma, None)]
    return [
        ("RDMA device", recorded.rdma, rdma.name),
        ("node GUID", recorded.guid, rdma.node_guid),
        ("character device", _describe(recorded.uverbs), _describe(rdma.uverbs)),
    ]


def _describe(node: DeviceNode | None) -> str | None:
    return None if node is None else f"{node.name} ({node.major}:{node.minor})"
