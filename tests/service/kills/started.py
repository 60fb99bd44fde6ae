"""``rtfilter serve``, with indexes written often; KILL_AT and FAULT say what else is to go wrong.

KILL_AT is ``point:n``: the process kills itself the nth time it comes there.
"""

import os
import shutil
import signal
import sys
from collections import Counter
from types import SimpleNamespace

from rtfilter import EventFilter
from rtfilter.cli import main
from rtfilter.service import deliver, log_matcher, settings, snapshots, upkeep
from rtfilter.service.records import UserDelivery
from rtfilter.store import log

POINTS = (
    "before the commit",
    "in the commit",
    "after the commit",
    "told, and progress not written",
    "before an index is written",
    "in an index",
    "an index is written aside",
    "an index is renamed",
    "older indexes are removed",
)
_come = Counter()


def here(point):
    """The process comes to a point."""
    _come[point] += 1
    if os.environ.get("KILL_AT") == f"{point}:{_come[point]}":
        os.kill(os.getpid(), signal.SIGKILL)


def wrap(owner, name, before=None, after=None, when=lambda *_: True):
    """Come to points before and after a call."""
    inner = getattr(owner, name)

    def call(*given, **more):
        if before and when(*given):
            here(before)
        found = inner(*given, **more)
        if after and when(*given):
            here(after)
        return found

    setattr(owner, name, call)


def points():
    """Have the process come to all of `POINTS`."""
    wrap(log.Log, "commit", "before the commit", "after the commit", lambda _, asked, *__: bool(asked))
    wrap(log.Log, "_put_progress", "in the commit")
    wrap(
        deliver.Deliver,
        "progress",
        "told, and progress not written",
        when=lambda mine, *_: any(backlog._unwritten for backlog in mine.backlogs.values()),
    )
    wrap(EventFilter, "save", "before an index is written")
    wrap(os, "fsync", None, "in an index")
    wrap(snapshots, "write", None, "an index is written aside")

    def remove(path, ignore_errors=False):
        kept = "-" in path.name and path.name != "new"
        if kept:
            here("an index is renamed")
        shutil.rmtree(path, ignore_errors)
        if kept:
            here("older indexes are removed")

    snapshots.shutil = SimpleNamespace(rmtree=remove)


# -- faults --------------------------------------------------------------------------------------------------


def lost_mark():
    """What is acknowledged is not kept."""
    inner = log.Log._put_progress
    log.Log._put_progress = lambda self, to, progress: inner(self, to, progress._replace(marks={}))


def settled_too_early():
    """What is just put into the log counts as matched."""
    inner = log.Log.commit

    def commit(self, requests, progress=None):
        head = self.head + sum(len(one.entries) for one in requests)
        return inner(self, requests, progress and progress._replace(settled=head))

    log.Log.commit = commit


def settled_with_each_part():
    """Of users who are in later parts, it counts as written."""
    inner = deliver.Deliver.progress

    def progress(self, settled, whole):
        return inner(self, settled, whole)._replace(settled=settled)

    deliver.Deliver.progress = progress


def answered_before_commit():
    """The answer comes while the transaction waits for the next one."""
    inner, waiting = log.Log.commit, []

    def commit(self, requests, progress=None):
        before, waiting[:] = list(waiting), requests
        if before:
            self.head -= sum(len(one.entries) for one in before)
        inner(self, before, progress)
        placed = []
        for one in requests:
            placed.append(log.Placed(self.head + 1, len(one.entries), True))
            self.head += len(one.entries)
        return placed

    log.Log.commit = commit


def wrong_user():
    """Now and then another user is told as well."""
    inner, count = deliver.Deliver.tell, Counter()

    def tell(self, found):
        inner(self, found)
        for event, ids, *_ in found:
            count["told"] += 1
            users = {owned.user for owned in self._owners.values()} - {self._owners[ids[0]].user}
            if count["told"] % 20 == 0 and users:
                entry = event.entry
                other = UserDelivery(event.position, (ids[0],), entry.body, "default", entry.at)
                self._take(min(users), [other])

    deliver.Deliver.tell = tell


def key_forgotten():
    """A repeated request is another one."""
    inner = log.Log.commit
    log.Log.commit = lambda self, asked, *more: inner(self, [one._replace(key=None) for one in asked], *more)


def index_alone():
    """What was changed since an index was written is not made again."""
    inner = log.Log.entries
    log.Log.entries = lambda self, after, upto=None, filter=None: (
        iter(()) if filter and after else inner(self, after, upto, filter)
    )


def backlog_lost():
    """What was known, and waits, is not restored."""
    log.Log.backlog = lambda self: iter(())


def unsettled_lost():
    """What was not known yet is not computed anew."""
    log.Log.entries = lambda self, after, upto=None, filter=None: iter(())


def end_not_told():
    """Nobody is told of the end of a subscription whose removal was in the log when the server was killed."""
    deliver.Deliver.end = lambda *_: None


def removed_delivered():
    """A subscription that was removed, still has what it matched."""
    deliver.Deliver.forget = lambda *_: None


def replacement_ignored():
    """The predicate stays the old one."""
    inner = log_matcher.Index.change
    log_matcher.Index.change = lambda self, changes: inner(
        self, [one for one in changes if one.entry.kind != log.Kind.REPLACE]
    )


def left_out():
    """Some events are not matched."""
    inner = deliver.Deliver.tell

    def tell(self, found):
        inner(self, [one for one in found if one.event.position % 23])

    deliver.Deliver.tell = tell


FAULTS = (
    lost_mark,
    settled_too_early,
    settled_with_each_part,
    answered_before_commit,
    wrong_user,
    key_forgotten,
    index_alone,
    backlog_lost,
    unsettled_lost,
    end_not_told,
    removed_delivered,
    replacement_ignored,
    left_out,
)


if __name__ == "__main__":
    settings.Settings.keeping = property(lambda self: upkeep.Keeping(self.retention, self.redeliver, 6))
    deliver.FEWEST = 1  # so that progress is written in parts
    for fault in FAULTS:
        if fault.__name__ == os.environ.get("FAULT"):
            fault()
    points()
    sys.exit(main(sys.argv[1:]))
