"""`python -m proofs.planted`: plant some faults, or all, and keep which tests notice."""

import argparse
import signal
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from tqdm import tqdm

from proofs.keeping import keep, kept
from proofs.planted.fault import FAULTS, Fault, FaultError
from proofs.planted.planting import Caught, caught, row, stop, unsound
from proofs.proof import PROOFS
from rtfilter.replay.machine import one_line

NAME = "planted"


def keep_rows(new: dict[str, dict[str, Any]]) -> None:
    """Keep new rows, by the name of their fault, with those of other faults that were kept before."""
    former = {one["fault"]: one for one in kept(NAME).get("rows", [])}
    rows = [(former | new)[fault.name] for fault in FAULTS if fault.name in former | new]
    proof = PROOFS[NAME]
    found = {
        "claim": proof.claim,
        "cases": proof.cases,
        "seeds": [0, proof.cases - 1],
        "tried": dict(sorted(Counter(one["room"] for one in rows).items())),
        "seconds": round(sum(one["seconds"] for one in rows)),
        "machine": one_line(),
        "rows": rows,
    }
    keep(NAME, found)


def main() -> int:
    """Plant the faults that are asked for, or all; 1 where no test notices one of them."""
    parser = argparse.ArgumentParser(prog="python -m proofs.planted", description=__doc__)
    add = parser.add_argument
    add("--fault", action="append", default=[], metavar="NAME", help="may be given several times")
    add("--room", action="append", default=[], metavar="ROOM", help="may be given several times")
    add("--processes", type=int, default=1, metavar="N", help="faults at a time (default: 1)")
    asked = parser.parse_args()
    names, rooms = {fault.name for fault in FAULTS}, {fault.room for fault in FAULTS}
    for given, known in ((asked.fault, names), (asked.room, rooms)):
        for unknown in set(given) - known:
            parser.error(f"unknown {unknown}; there are {', '.join(sorted(known))}")
    every = not asked.fault and not asked.room
    faults = [fault for fault in FAULTS if every or fault.name in asked.fault or fault.room in asked.room]
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and end what runs
    missed = _plant(faults, asked.processes)
    print(f"{len(faults) - len(missed)} of {len(faults)} faults are noticed")
    if missed:
        print(f"not noticed: {', '.join(missed)}")
    return bool(missed)


def _plant(faults: list[Fault], processes: int) -> list[str]:
    """Return the names of the faults that no test notices."""
    rows: dict[str, dict[str, Any]] = {}
    missed = []
    with ThreadPoolExecutor(processes) as threads:
        try:
            running: dict[Future[Caught], Fault] = {threads.submit(caught, fault): fault for fault in faults}
            for done in tqdm(as_completed(running), NAME, len(running), unit="fault"):
                fault = running[done]
                try:
                    rows[fault.name] = row(fault, done.result())
                except (AssertionError, FaultError) as error:
                    missed.append(fault.name)
                    tqdm.write(f"{error}\n", sys.stderr)
                else:
                    tqdm.write(f"{fault.name}: {rows[fault.name]['test']}, {rows[fault.name]['seconds']} s")
        except BaseException:
            stop()
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    print("the same tests without a fault ...", flush=True)
    wrong = unsound([one["test"] for one in rows.values()])
    for name in [name for name, one in rows.items() if one["test"] in wrong]:
        missed.append(name)
        print(f"{name}: {rows.pop(name)['test']} fails without the fault as well", file=sys.stderr)
    keep_rows(rows)
    return missed


if __name__ == "__main__":
    sys.exit(main())
