"""Bittner's distributed alerting service (2004): the centralised comparison, repeated."""
