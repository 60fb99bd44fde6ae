"""The subscriptions of a filter: what they ask for, how they change, how they are kept."""
