"""The metrics of a broker that does not run."""

from rtfilter import Schema
from rtfilter.overlay.running.broker_keys import Key
from rtfilter.overlay.running.broker_metrics import BrokerMetrics
from rtfilter.overlay.running.broker_process import BrokerProcess
from rtfilter.overlay.running.broker_settings import BrokerSettings
from rtfilter.store.broker_store import BrokerStore
from rtfilter.store.database import engine


def idle_broker(folder):
    """Its registry."""
    database = engine(f"sqlite:///{folder}/broker.sqlite")
    told = BrokerSettings(name="a", key=folder, data=folder, schema="{}", rendezvous="nowhere:1")
    types = {"trade": Schema({"x": float})}
    process = BrokerProcess(told, types, Key.new(), BrokerStore(database, "a"), "here:1")
    process.counts["Event"] += 1
    process.clients.publications.delays += [0.002, 0.2]
    database.dispose()
    return BrokerMetrics(process.snapshot).registry
