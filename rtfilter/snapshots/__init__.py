"""Snapshots: arrays in a directory, opened by memory mapping."""
