"""The values of the chart that switch a feature on, each with the values that it needs."""

from typing import Any

Values = dict[str, Any]

OWN_NODE: Values = {"ownNode.enabled": True}  # as by default
TOPOLOGY_LABELS: Values = {"topologyLabels.enabled": True}
RAILS_CONDITION: Values = {"railsCondition.enabled": True}
DRA: Values = {"offer": "dra"}
RAILS_TAINT: Values = {**RAILS_CONDITION, "railsCondition.taint": True}
KERNEL_MESSAGES: Values = {**RAILS_CONDITION, "railsCondition.kernelMessages": True}
WEBHOOK: Values = {"webhook.enabled": True}
PRIORITY_CLASS: Values = {**WEBHOOK, "webhook.priorityClass": "iteration"}
CERT_MANAGER: Values = {**WEBHOOK, "webhook.certManager.enabled": True}
HOST_NETWORK: Values = {**WEBHOOK, "webhook.hostNetwork.enabled": True}
CONTROLLERS: Values = {"controllers.enabled": True}
STICKY: Values = {
    **CONTROLLERS,
    "controllers.stickyAddresses.enabled": True,
    "controllers.stickyAddresses.range": "10.58.0.0/16",
}
CLEAN_UP: Values = {**CONTROLLERS, "controllers.cleanUp.enabled": True}
GANGS: Values = {**WEBHOOK, **CONTROLLERS, "gangs.enabled": True}
MONITORING: Values = {"monitoring.enabled": True}
IDLE: Values = {"validate.idle.schedule": "17 * * * *"}
PRIORITIES: Values = {"priorityClasses.enabled": True}
AUTOSCALER: Values = {"dnsAutoscaler.enabled": True}

ALL: dict[str, Values] = {
    "own node": OWN_NODE,
    "topology labels": TOPOLOGY_LABELS,
    "condition": RAILS_CONDITION,
    "taint": RAILS_TAINT,
    "kernel messages": KERNEL_MESSAGES,
    "dra": DRA,
    "webhook": WEBHOOK,
    "priority class": PRIORITY_CLASS,
    "cert-manager": CERT_MANAGER,
    "host network": HOST_NETWORK,
    "controllers": CONTROLLERS,
    "sticky addresses": STICKY,
    "clean-up": CLEAN_UP,
    "gangs": GANGS,
    "monitoring": MONITORING,
    "tries of idle nodes": IDLE,
    "priorities": PRIORITIES,
    "autoscaler": AUTOSCALER,
}
EVERYTHING: Values = {path: value for values in ALL.values() for path, value in values.items()}
