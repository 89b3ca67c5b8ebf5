"""The labels and annotations under `railnet.io/` that describe a training pod: set by its author, or added by a review."""

NET1 = "railnet.io/net1"  # label of a pod or namespace: "true" or "false"; a label, since a webhook's selectors do not see annotations
JOB = "railnet.io/job"  # labels that a review adds; on a pod without an operator its author may set them
ROLE = "railnet.io/role"
RANK = "railnet.io/rank"
CONTAINER = "railnet.io/container"  # annotation: the name of the container that trains
SIZE = "railnet.io/size"  # annotation: the number of the job's pods
NAMES = "railnet.io/names"  # annotation of a pod: `task` for a name of its task on net1; label of what Railnet makes for names
TRAIN = "railnet.io/train"  # label of all objects of `railnet train up`: the job's name
NETWORK_MODE = "railnet.io/network-mode"  # annotation of a pod, label of a Service: "host"
HOST_PORT = "railnet.io/host-port"  # annotation that a review adds: the port of a pod in host-network mode
PS_CLEANUP = "railnet.io/ps-cleanup"  # annotation of a pod, or label of a namespace: "false" keeps its servers
