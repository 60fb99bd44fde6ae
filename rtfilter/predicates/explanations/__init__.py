"""Reasons why an event matches or does not match, and values that would match."""
