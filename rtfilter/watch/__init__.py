"""What a filter does, as Prometheus metrics."""
