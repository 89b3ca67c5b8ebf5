"""Netlink requests about links, addresses, VFs and RDMA devices, and ARP announcements on a link."""
