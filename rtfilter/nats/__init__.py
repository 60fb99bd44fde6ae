"""A matching stage on NATS JetStream: subscriptions in a key-value bucket, events and matches in streams.

The way of an event, with the module of each step:

    pull         a batch is what a consumer has delivered since the last one   Pull
    split        a message becomes its events                                  events_of
    reach        wait for all changes of the bucket up to now                  SubscriptionBucket.reach
    match        `EventFilter.stream`, group by group                          NatsWorker
    publish      a message for each event and receiver, many in flight         Publisher
    acknowledge  the event, after its matches are stored                       NatsWorker

`subjects`, `event_messages` and `bucket_entries` are pure. Needs the extra `nats`.
"""

from rtfilter.basics.extras import needed

with needed("nats", "rtfilter.nats"):
    import nats as nats

from rtfilter.nats.subjects import id_of, key_of

__all__ = ["id_of", "key_of"]
