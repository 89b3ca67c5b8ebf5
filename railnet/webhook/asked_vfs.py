"""How many VFs a ResourceClaim asks for, and each claim of a ResourceClaimTemplate. No I/O."""

from collections.abc import Collection, Mapping
from typing import Any

from railnet.gangs.device_claims import amounts, device_claim
from railnet.gangs.slice_devices import BY_CLAIM


def of_claim(claim: Mapping[str, Any], resources: Collection[str]) -> int:
    """Return how many VFs a claim asks for; `resources` are those of the pools, each with a DeviceClass of its own.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: this is no claim.
    """
    return int(amounts(device_claim(claim), resources).get(BY_CLAIM, 0))


def of_template(template: Mapping[str, Any], resources: Collection[str]) -> int:
    """Return how many VFs each claim of a template asks for; arguments and errors are those of `of_claim`."""
    return of_claim({"metadata": template["metadata"], "spec": template["spec"]["spec"]}, resources)
