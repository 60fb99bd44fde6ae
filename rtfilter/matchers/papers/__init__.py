"""Matchers as papers describe them, for comparison: registered and tested as all others."""
