"""Hybrid routing beside hierarchical routing, compared as Xue and Feng (2005) do."""
