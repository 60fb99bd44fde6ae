"""Errors, results, types of arrays, and small helpers of every room."""
