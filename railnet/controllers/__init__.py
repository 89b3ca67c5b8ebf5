"""Reconciles objects for training jobs: brings the state of the cluster's objects to what the jobs' pods ask for, again and again.

An `informer` has the objects of one kind as the API server reports them. Each of its changes puts keys into a `work_queue`, and a
reconciler compares what should be with what is, for one key at a time. All state is in the cluster's objects: a controller that starts
again lists them and goes on. Pure functions of `railnet.jobs` decide what should be.
"""
