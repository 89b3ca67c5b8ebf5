"""The controllers of training jobs as a program: `railnet controllers`."""
