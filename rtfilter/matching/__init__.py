"""The matching of a batch: from its plan to the release of its last event."""
