"""Planted faults: small changes of the code, each of which must make a test of `make test` fail.

`faults.toml` lists them. `python -m proofs.planted` plants each one in a copy of the checkout, runs the tests
that the list names, and keeps in `results` which test notices. It never changes the checkout itself.
"""

from proofs.planted.fault import FAULTS, Fault
from proofs.planted.planting import rows, run

__all__ = ["FAULTS", "Fault", "rows", "run"]
