"""What a configuration would mean on this node: which PFs its selectors match, and which CNI plugins the node has."""

import asyncio
from collections.abc import Iterator

from railnet.config_check.remark import Remark
from railnet.configuration import Configuration
from railnet.kernel.files import followed
from railnet.kernel.inventory import inventory
from railnet.kernel.sysfs.functions import Sysfs
from railnet.value_readers import Fault
from railnet.vf import provision
from railnet.vf.inventory import Inventory
from railnet.vf.pf_selector import described
from railnet.vf.provision import Provision, ProvisionBySelector


def plugins(configuration: Configuration) -> frozenset[str]:
    """Return the names of the files in the node's folder of CNI plugins.

    Raises:
        Fault: the folder cannot be read.
    """
    try:
        folder = followed(configuration.host.root, str(configuration.host.cni_bin))
        return frozenset(file.name for file in folder.iterdir())
    except OSError as error:
        raise Fault(
            "host.cniBin",
            f"the folder of CNI plugins {configuration.host.cni_bin} cannot be read: {error.strerror}; host.cniBin and host.root of "
            "the file say where it is",
        ) from None


def compare(configuration: Configuration) -> Iterator[Remark]:
    """Say what each entry of `provision`, and `rails`, matches on this node.

    Raises:
        OSError: host.sysfs is not a sysfs.
    """
    sysfs = Sysfs(configuration.host.sysfs, configuration.rails, configuration.link_layers, configuration.rail_select)
    yield from remarks(configuration, asyncio.run(inventory(sysfs, Inventory())))


def remarks(configuration: Configuration, node: Inventory) -> Iterator[Remark]:
    """Say the same of a node whose cards are known. Pure. The lines are not known here."""
    entries = configuration.provision
    for position, entry in enumerate(entries):
        key = f"provision[{position}]"
        yield Remark("note", None, key, f"{key} {_matches(entry, node)}")
    _, twice = provision.selected(entries, node)
    for trouble in dict.fromkeys([*twice.values(), *provision.unmatched(entries, node).values()]):
        yield Remark("error", None, "provision", trouble)
    if configuration.rail_select is not None:
        eligible = [card.address for card in node.cards if card.eligible]
        pfs = [described(pf) for pf in node.pfs if pf.address in eligible]
        yield Remark("note", None, "rails", f"rails matches {', '.join(pfs) or 'no PF'} on this node")
    if node.selects_no_rail is not None:
        yield Remark("error", None, "rails", node.selects_no_rail)


def _matches(entry: Provision | ProvisionBySelector, node: Inventory) -> str:
    wanted = (entry.pf,) if isinstance(entry, Provision) else provision.matching(entry.select, node)
    pfs = [described(pf) for pf in node.pfs if pf.address in wanted]
    return f"matches {', '.join(pfs) or 'no PF'} on this node"
