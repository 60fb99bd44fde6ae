"""The parts of constraints: names, patterns of text, networks, times, distances and arithmetic."""
