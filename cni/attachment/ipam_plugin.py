"""Addresses from a CNI IPAM plugin, run once for each rail of a sandbox. Generators, as the primary's chain in `cni.host.chain`.

Addresses that Railnet computes itself are `cni.attachment.local_ipam`'s.

Source: CNI specification 1.1.0, section 4, "Plugin Delegation": the delegate gets the delegator's network configuration,
with its `ipam` object, and answers with a result that has no interfaces.
"""

import json
from collections.abc import Generator
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from cni.host import chain
from cni.host.chain import Exec, ExecOutput
from cni.host.errors import DELEGATE_BROKE, CniError, NotExecuted, TimedOut
from railnet.vf.address_slice import IpAddress
from railnet.vf.permitted_networks import PluginIpam
from railnet.vf.record import RecordedIpam
from railnet.vf.steps import Given, Route


def as_recorded(network: str, ipam: PluginIpam, version: str, ifnames: tuple[str, ...], path: str) -> RecordedIpam:
    """Return the plugin's configuration; `version` is one that the node's plugins support, `path` is CNI_PATH.

    The network's name has a prefix: plugins keep their state by this name, and it must never be the primary's.
    """
    conf = {"cniVersion": version, "name": f"railnet-{network}", "type": chain.OURSELVES, "ipam": ipam.conf}
    return RecordedIpam(conf, ifnames, path)


def add(ipam: RecordedIpam) -> Generator[Exec, ExecOutput, dict[str, Given]]:
    """Run the plugin's ADD for every interface; return the addresses by interface name. `delete` undoes an ADD that failed.

    Raises:
        CniError: the plugin's own error; 105: its output is no result; 106: it took too long. NotExecuted: there is no such
            plugin, and no address was given.
    """
    given: dict[str, Given] = {}
    plugin = ipam.conf["ipam"]["type"]
    for ifname in ipam.ifnames:
        try:
            stdout = chain.result_of(plugin, (yield _exec(ipam, "ADD", ifname)))
        except NotExecuted as error:
            if given:  # there is something to undo
                raise CniError(error.code, str(error), error.details) from None
            raise
        given[ifname] = _parse(plugin, stdout)
    return given


def delete(ipam: RecordedIpam) -> Generator[Exec, ExecOutput, None]:
    """Run the plugin's DEL for every interface, also after an ADD that gave it no address; then raise the first failure. A plugin that takes too long ends it.

    Raises:
        CniError: as for `add`.
    """
    failure: CniError | None = None
    for ifname in reversed(ipam.ifnames):
        try:
            chain.check_success(ipam.conf["ipam"]["type"], (yield _exec(ipam, "DEL", ifname)))
        except TimedOut as error:
            failure = failure or error
            break  # it would take as long again for each interface; all are run again later
        except CniError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _exec(ipam: RecordedIpam, command: str, ifname: str) -> Exec:
    return Exec(ipam.conf["ipam"]["type"], command, json.dumps(ipam.conf).encode(), ifname)


def _parse(plugin: str, stdout: bytes) -> Given:
    result = json.loads(stdout)
    try:  # `ipaddress` takes a number for an address; `str` makes it refuse one
        ips = result["ips"]
        addresses = tuple(ip_interface(str(entry["address"])) for entry in ips)
        gateways = [ip_address(str(entry["gateway"])) for entry in ips if entry.get("gateway")]
        routes = tuple(_route(entry, gateways) for entry in result.get("routes") or ())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"IPAM plugin {plugin!r} printed a result without usable 'ips': {type(error).__name__}: {error}"
        raise CniError(DELEGATE_BROKE, message, stdout[:2000].decode(errors="replace")) from None
    return Given(addresses, routes)


def _route(entry: dict[str, Any], gateways: list[IpAddress]) -> Route:
    destination = ip_network(str(entry["dst"]))
    if entry.get("gw"):
        return Route(destination, ip_address(str(entry["gw"])))
    # A route without a gateway uses the gateway of its address family, if there is one: ConfigureIface(), pkg/ipam of the CNI plugins.
    return Route(destination, next((gateway for gateway in gateways if gateway.version == destination.version), None))
