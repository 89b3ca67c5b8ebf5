"""The labels and annotations under `railnet.io/` by which a pod tells what kind of training it is, and is told."""

NET1 = "railnet.io/net1"  # label, on pod or namespace: "true" or "false"; labels, since selectors of webhooks see no annotations
JOB = "railnet.io/job"  # labels out; on a pod that no operator made they may be given
ROLE = "railnet.io/role"
RANK = "railnet.io/rank"
CONTAINER = "railnet.io/container"  # annotation: the name of the container that trains
SIZE = "railnet.io/size"  # annotation: of how many pods the job is
