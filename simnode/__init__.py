"""Simulated Kubernetes nodes without the hardware, for the test tiers and `scripts/demo`.

Each part stands at its real path and speaks the real protocol, so that the product needs no branch for tests: a sysfs
tree that is kept up to date as the kernel would do it, netdevs of type InfiniBand with a fabric behind them, a kubelet,
a container runtime. Code of Railnet itself does not belong here.
"""
