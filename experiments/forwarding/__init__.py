"""Ways to send subscriptions and events through brokers, compared as Bittner (2004) does."""
