"""All checks in the order of their making. Pure."""

from collections.abc import Callable, Iterable

from railnet.doctor import card_checks, network_checks, node_checks, roce_checks
from railnet.doctor.facts import Facts
from railnet.doctor.finding import SEVERITIES, Finding

_CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    node_checks.configuration,
    node_checks.daemon,
    node_checks.kubelets_view,
    node_checks.conflist,
    node_checks.bridge,
    card_checks.unreadable,
    card_checks.physical_functions,
    card_checks.ports,
    card_checks.vf_ports,
    card_checks.guids,
    card_checks.partitions,
    roce_checks.gids,
    roce_checks.mtus,
    roce_checks.flow_control,
    network_checks.mtus,
    network_checks.ranges,
    network_checks.reverse_path_filter,
    network_checks.arp_ignore,
    node_checks.memlock,
    node_checks.memlock_of_pods,
    node_checks.gpudirect,
    node_checks.iommu,
    node_checks.acs,
    network_checks.clock,
)


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Return what all checks find, errors first."""
    all_findings = [finding for check in _CHECKS for finding in check(facts)]
    return tuple(sorted(all_findings, key=lambda finding: SEVERITIES.index(finding.kind.severity)))
