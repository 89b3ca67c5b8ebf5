"""Events about gangs, on the object that a gang's pods began with. That object is looked for only when there is something to say."""

import threading
from collections import defaultdict

from railnet.controllers.events import JobEvents
from railnet.controllers.gangs.root_objects import GangRoots
from railnet.gangs.planning_result import Asked, Said
from railnet.objects.involved_object import InvolvedObject


class GangEvents:
    """Queues events until their roots are known; any thread may call it."""

    def __init__(self, events: JobEvents, roots: GangRoots) -> None:
        """Write by `events`; find roots by `roots`."""
        self._events, self._roots = events, roots
        self._lock = threading.Lock()
        # Each once: what is wrong is found again by each pass, and a root may not be read for minutes.
        self._waiting: defaultdict[Asked, dict[Said, None]] = defaultdict(dict)

    def say(self, event: Said) -> None:
        """Write an event, now or when its root is known."""
        owner = event.about.owner
        if owner is None:
            self._write(event.about.pod, event)
            return
        with self._lock:
            self._waiting[owner][event] = None
        self.answered(owner)

    def answered(self, owner: Asked) -> None:
        """Write the events about an owner whose root is known by now."""
        root = self._roots.find(owner)
        if root is None:
            return
        with self._lock:
            waiting = self._waiting.pop(owner, {})
        for event in waiting:
            self._write(root.owner.involved(owner.namespace), event)

    def _write(self, about: InvolvedObject, event: Said) -> None:
        (self._events.warning if event.type == "Warning" else self._events.normal)(about, event.reason, event.text)
