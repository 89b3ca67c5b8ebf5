"""Netlink messages: links and addresses, VFs of a PF, RDMA devices, and ARP announcements on a link."""
