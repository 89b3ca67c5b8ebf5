"""Kubernetes nodes without the hardware, for the `node` test tier and `railnet demo`.

Everything stands at its real path and speaks the real protocol, so that the product needs no branch for it: a sysfs
tree kept true as the kernel would, InfiniBand-typed netdevs with a fabric behind them, a kubelet, a container runtime.
What Railnet itself does on a node does not belong here.
"""
