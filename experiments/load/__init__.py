"""Behaviour under mixed load and at scale."""
