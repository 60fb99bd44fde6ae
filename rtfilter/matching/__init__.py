"""A batch on its way: from its plan to the release of its last event."""
