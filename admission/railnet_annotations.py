"""The annotations under `railnet.io/` that the admission helper reads, and the one that it writes."""

from training.railnet_labels import CONTAINER, SIZE
from vf.network import ADDRESS_ANNOTATION, NETWORK_ANNOTATION

VF = "railnet.io/vf"  # how many VFs: a number, or `auto`
RENDEZVOUS = "railnet.io/rendezvous"  # the interface that the names in TF_CONFIG belong to: `eth0` or `net1`
EXPLAIN = "railnet.io/explain"

PREFIX = "railnet.io/"
READ = (VF, RENDEZVOUS, CONTAINER, SIZE, NETWORK_ANNOTATION, ADDRESS_ANNOTATION)
WRITTEN = (EXPLAIN,)
