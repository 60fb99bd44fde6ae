"""Speed of searches, updates and loading, beside all peers."""
