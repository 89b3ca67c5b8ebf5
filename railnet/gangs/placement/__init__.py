"""Decides which nodes a gang gets, from nodes, free resources and gangs as plain values, without a clock and without Kubernetes.

A gang is a set of pods that start together or not at all. A domain is the set of nodes that have the same values of the labels that the
gang's constraint names: a leaf switch, a node pool, a node.
"""
