"""All checks in the order of their making. Pure."""

from collections.abc import Callable, Iterable

from railnet.doctor import card_checks, network_and_clock_checks, node_software_checks, roce_checks
from railnet.doctor.facts import Facts
from railnet.doctor.finding import SEVERITIES, Finding

_CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    node_software_checks.configuration,
    node_software_checks.daemon,
    node_software_checks.kubelets_view,
    node_software_checks.conflist,
    node_software_checks.bridge,
    card_checks.unreadable,
    card_checks.physical_functions,
    card_checks.ports,
    card_checks.vf_ports,
    card_checks.guids,
    card_checks.partitions,
    roce_checks.gids,
    roce_checks.mtus,
    roce_checks.flow_control,
    network_and_clock_checks.mtus,
    network_and_clock_checks.ranges,
    network_and_clock_checks.reverse_path_filter,
    network_and_clock_checks.arp_ignore,
    node_software_checks.memlock,
    node_software_checks.memlock_of_pods,
    node_software_checks.gpudirect,
    node_software_checks.iommu,
    node_software_checks.acs,
    network_and_clock_checks.clock,
)


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Return what all checks find, errors first."""
    all_findings = [finding for check in _CHECKS for finding in check(facts)]
    return tuple(sorted(all_findings, key=lambda finding: SEVERITIES.index(finding.kind.severity)))
