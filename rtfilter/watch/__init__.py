"""Prometheus metrics of filters."""
