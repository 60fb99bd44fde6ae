"""Trackers on top of a filter: the subscriptions that events enter, stay inside and leave, by key."""
