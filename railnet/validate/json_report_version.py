"""The version of the JSON report. It rises when a key changes its meaning or goes; a new key leaves it."""

FORMAT = 1
