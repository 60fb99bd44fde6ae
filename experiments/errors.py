"""The exception of experiments."""


class ResultError(ValueError):
    """A file of results cannot be used. The message says what to do."""
