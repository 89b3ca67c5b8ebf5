"""Pods that come and go while processes die: the churn, and faults at single system calls."""
