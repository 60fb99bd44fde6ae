"""Matchers as papers describe them, to compare with: registered, and tested as all others."""
