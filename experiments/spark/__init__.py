"""Throughput, memory and balance on Spark."""
