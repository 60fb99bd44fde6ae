"""Prometheus metrics of filters; here the stand-in for a filter without metrics, which needs no library."""

from __future__ import annotations

from typing import Literal, NoReturn


class Off:
    """No metrics: false as a condition, and every use is an error that explains how to enable them."""

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "<metrics are off>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"this filter has no metrics, so there is no metrics.{name}; "
            "make it with EventFilter(schema, metrics=True), or EventFilter.load(path, metrics=True)"
        )


OFF = Off()
