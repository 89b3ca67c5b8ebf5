"""All checks in the order of their making. Pure."""

from collections.abc import Callable, Iterable

from railnet.doctor import card_checks, daemon_runtime_and_gpu_checks, rail_ip_and_clock_checks, roce_checks
from railnet.doctor.facts import Facts
from railnet.doctor.finding_kinds import SEVERITIES, Finding

_CHECKS: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    daemon_runtime_and_gpu_checks.configuration,
    daemon_runtime_and_gpu_checks.daemon,
    daemon_runtime_and_gpu_checks.kubelet_folders,
    daemon_runtime_and_gpu_checks.kubelets_view,
    daemon_runtime_and_gpu_checks.primary,
    daemon_runtime_and_gpu_checks.slices,
    daemon_runtime_and_gpu_checks.lost_rails,
    daemon_runtime_and_gpu_checks.conflist,
    daemon_runtime_and_gpu_checks.rewrites,
    daemon_runtime_and_gpu_checks.bridge,
    card_checks.unreadable,
    card_checks.physical_functions,
    card_checks.ports,
    card_checks.vf_ports,
    card_checks.guids,
    card_checks.partitions,
    roce_checks.gids,
    roce_checks.mtus,
    roce_checks.flow_control,
    rail_ip_and_clock_checks.mtus,
    rail_ip_and_clock_checks.ranges,
    rail_ip_and_clock_checks.reverse_path_filter,
    rail_ip_and_clock_checks.arp_ignore,
    daemon_runtime_and_gpu_checks.memlock,
    daemon_runtime_and_gpu_checks.memlock_of_pods,
    daemon_runtime_and_gpu_checks.gpudirect,
    daemon_runtime_and_gpu_checks.iommu,
    daemon_runtime_and_gpu_checks.acs,
    rail_ip_and_clock_checks.clock,
)


def findings(facts: Facts) -> tuple[Finding, ...]:
    """Return what all checks find, errors first. Of a machine that is no node only this is said, and what could not be read."""
    if not facts.is_node:
        seen = (
            f"no kubelet of this machine runs, and kubelet's folders and {facts.conflist_folder} have nothing of a node"
        )
        wrong = daemon_runtime_and_gpu_checks.configuration(facts)
        return (*wrong, Finding("not-a-node", "this machine", seen), *card_checks.unreadable(facts))
    all_findings = [finding for check in _CHECKS for finding in check(facts)]
    return tuple(sorted(all_findings, key=lambda finding: SEVERITIES.index(finding.kind.severity)))
