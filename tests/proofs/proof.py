"""What a proof is, and which there are."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from proofs import (
    agreement,
    api,
    arrow_bodies,
    attacks,
    damage,
    elections,
    faults,
    frames,
    fuzz,
    gates,
    interrupts,
    kills,
    matchers,
    planted,
    sequences,
    servers,
    sites,
    soak,
    stage_kills,
    suites,
    trees,
)


class Proof(NamedTuple):
    """A claim, and cases that try to refute it."""

    claim: str
    cases: int
    """Of `make prove`; their seeds are 0 to `cases` - 1."""
    run: Callable[[int], Counter[str]]
    """Tries one case, a seed; counts what it tried. Raises `AssertionError` where the claim is wrong."""
    tenth: bool = True
    """Whether `make test` runs every tenth case. Of others, a test of their own is the short form."""
    short: Callable[[int], Counter[str]] | None = None
    """The same in `make test`, where a case takes too long, or needs what may not be installed."""
    rows: Callable[[], list[dict[str, Any]]] | None = None
    """What is kept of each case, in a table."""


PROOFS = {
    "kills": Proof("a process killed while it saves leaves the old snapshot or the new one", 400, kills.run),
    "damage": Proof("a damaged snapshot is refused, or nothing of it matters", 2000, damage.run),
    "sequences": Proof("any sequence of changes and batches matches as brute force", 200, sequences.run),
    "agreement": Proof("the R*-tree finds what rtree finds, after any changes", 300, agreement.run),
    "gates": Proof("no change meets a batch, and nobody waits for ever", 2000, gates.run),
    "interrupts": Proof(
        "a call that is interrupted is made or not made, and nobody waits", 300, interrupts.run
    ),
    "frames": Proof("any bytes are frames or one error, however they are cut", 20_000, frames.run),
    "matchers": Proof(
        "every matcher keeps the promises of the port",
        60,
        matchers.run,
        short=matchers.some,
    ),
    "api": Proof("every role is answered as the OpenAPI document says", 10, api.run),
    "arrow-bodies": Proof("a damaged stream of Arrow's is events, or refused", 8000, arrow_bodies.run),
    "fuzz": Proof(
        "any bytes are taken or refused as documented, guided by coverage", 10, fuzz.run, short=fuzz.some
    ),
    "service-kills": Proof(
        "a killed server loses, misdirects and repeats nothing that it should not",
        20,
        servers.run,
        short=partial(servers.run, kills=3),
    ),
    "standby": Proof(
        "a standby takes over from a killed server, and nothing answered is lost",
        10,
        servers.run_pair,
        tenth=False,
    ),
    "service-faults": Proof(
        "no full disk, lost database, wrong clock, dead connection or hanging webhook costs what was taken",
        20,
        faults.run,
        tenth=False,
    ),
    "nats": Proof(
        "no match on NATS is lost, wrong or stored twice while servers and workers are killed",
        1,
        stage_kills.run,
        tenth=False,
    ),
    "sites": Proof(
        "every event arrives once at every site that wants it, while sites are killed and links are cut",
        len(sites.CASES),
        sites.run,
        tenth=False,
    ),
    "elections": Proof(
        "in every interleaving, no claim is made twice, and calm leads to one designated broker",
        len(elections.CASES),
        elections.run,
        tenth=False,
    ),
    "trees": Proof(
        "brokers come to one tree and one root within 60 heartbeats after any faults",
        1000,
        trees.run,
        tenth=False,
    ),
    "service-soak": Proof(
        "a server at work loses nothing, misdirects nothing, and takes no more memory",
        1,
        soak.run,
        tenth=False,
    ),
    "suites": Proof(
        "each case of a published suite is right, refused clearly, or differs as documented",
        suites.CASES,
        suites.run,
        tenth=False,
        rows=suites.rows,
    ),
    "attacks": Proof(
        "no attack keeps a second client waiting for half a second, takes 600 MB, or leaves more than 64 MB "
        "and a tenth of its peak 30 s later",
        len(attacks.ATTACKS),
        attacks.run,
        tenth=False,
        rows=attacks.rows,
    ),
    "planted": Proof(
        "each planted fault makes a test fail",
        len(planted.FAULTS),
        planted.run,
        tenth=False,
        rows=planted.rows,
    ),
}
