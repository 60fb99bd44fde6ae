"""The stage on NATS JetStream: events per second, response times, and what they cost."""
