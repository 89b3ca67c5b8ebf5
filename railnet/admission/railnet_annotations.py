"""The annotations under `railnet.io/` that the admission helper or the controllers read, and those that the helper writes."""

from railnet.jobs.railnet_labels import CONTAINER, HOST_PORT, NAMES, NETWORK_MODE, PS_CLEANUP, SIZE
from railnet.vf.permitted_networks import ADDRESS_ANNOTATION, NETWORK_ANNOTATION, STICKY_ANNOTATION

VF = "railnet.io/vf"  # how many VFs: a number, or `auto`
RENDEZVOUS = "railnet.io/rendezvous"  # the interface that the names in TF_CONFIG belong to: `eth0` or `net1`
ENVIRONMENT = "railnet.io/environment"  # "false": no variables that name net1
EXPLAIN = "railnet.io/explain"

PREFIX = "railnet.io/"
READ = (
    VF,
    RENDEZVOUS,
    ENVIRONMENT,
    CONTAINER,
    SIZE,
    NAMES,
    PS_CLEANUP,
    NETWORK_ANNOTATION,
    ADDRESS_ANNOTATION,
    STICKY_ANNOTATION,
    NETWORK_MODE,
)
WRITTEN = (EXPLAIN, HOST_PORT)
