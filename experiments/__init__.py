"""Measurements: `python -m experiments --help` lists them.

`speed` compares the speed with that of other libraries (`peers`). `response` measures mean response times of
bursts, `load` mixed load and large indexes, `spark` throughput on Spark. `paper` repeats the evaluation of
the paper (Wang et al.). Results, pictures and the page of the evaluation are kept in `report`.

Experiments run from the checkout, after ``pip install -e '.[replay]'``. The extra `peers` adds the libraries
to compare with, and `spark` is needed for the experiments on Spark.
"""


class ResultError(ValueError):
    """A file of results cannot be used. The message says what to do."""
