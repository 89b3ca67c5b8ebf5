"""The name by which kubelet and the scheduler know Railnet's DRA driver. This module also runs on the host, so it imports nothing."""

DRIVER = "rdma.railnet.io"
