"""Decides what becomes of gangs: which nodes a gang gets (`placement/`), and what is said of it and done with its pods.

Pure: no I/O, no clock, no log. What watches, asks and writes is `railnet.controllers.gangs`. What a pod's labels and annotations say of its
gang is in `railnet.jobs`, as the webhook and the commands read it, too.
"""
