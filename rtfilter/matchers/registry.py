"""Every matcher by name. To add one, add a module here or below `papers`, and a line to this file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

from rtfilter.basics.options import Named, require, split
from rtfilter.events.schema import Schema
from rtfilter.matchers.port import Matcher

MATCHERS: Final[Mapping[str, str]] = {
    "scan": "rtfilter.matchers.scan:ScanMatcher",
    "rtree": "rtfilter.matchers.rtree:RTreeMatcher",
    "split": "rtfilter.matchers.split_by_kind:SplitMatcher",
    "masks": "rtfilter.matchers.masks:MasksMatcher",
    "counting": "rtfilter.matchers.counting:CountingMatcher",
    "rein": "rtfilter.matchers.papers.rein:ReinMatcher",
    "hem": "rtfilter.matchers.papers.rein:HemMatcher",
    "tama": "rtfilter.matchers.papers.tama:TamaMatcher",
    "be-tree": "rtfilter.matchers.papers.be_tree:BETreeMatcher",
    "shared-counting": "rtfilter.matchers.papers.shared_counting:SharedCountingMatcher",
    "shared-counting-filters": "rtfilter.matchers.papers.shared_counting:CountingInFilters",
    "shared-counting-stamped": "rtfilter.matchers.papers.shared_counting:CountingWithStamps",
    "matching-tree": "rtfilter.matchers.papers.matching_tree:MatchingTreeMatcher",
    "matching-tree-equality": "rtfilter.matchers.papers.matching_tree:EqualityTreeMatcher",
    "filter-nodes": "rtfilter.matchers.papers.filter_nodes:FilterNodesMatcher",
    "gough-smith": "rtfilter.matchers.papers.gough_smith:GoughSmithMatcher",
    "hashes": "rtfilter.matchers.papers.hashes:HashesMatcher",
    "ternary-tree": "rtfilter.matchers.papers.ternary:TernaryTreeMatcher",
    "ternary-vectors": "rtfilter.matchers.papers.ternary_vectors:TernaryVectorsMatcher",
    "rapidmatch": "rtfilter.matchers.papers.rapidmatch:RapidMatcher",
    "rapidmatch-modified": "rtfilter.matchers.papers.rapidmatch:ModifiedRapidMatcher",
    "sgim": "rtfilter.matchers.papers.sgim:SgimMatcher",
    "naive": "rtfilter.matchers.papers.eventwise:NaiveMatcher",
}
"""Name to module and class, or to a function that makes the matcher; imported only when needed."""

Factory = Named | Callable[[Schema], Matcher]
"""The choice of a matcher: a name in `MATCHERS`, a mapping, or a callable.

A mapping has the name and options, ``{"name": "filter-nodes", "bit_lists": 0.1}``. A callable makes a matcher
for a schema, as a class does.
"""


def factory_of(matcher: Factory) -> Callable[..., Matcher]:
    """Return the function that makes a matcher.

    Raises `ValueError` for a name that is not in `MATCHERS`, or for options that the matcher does not have;
    `TypeError` for an object that is not callable.
    """
    if isinstance(matcher, Mapping):
        name, options = split("matcher", matcher, MATCHERS)
        make = factory_of(name)
        require(f"the matcher {name!r}", make, options)
        return partial(make, **options)
    if isinstance(matcher, str):
        if matcher not in MATCHERS:
            known = ", ".join(MATCHERS)
            raise ValueError(f"unknown matcher {matcher!r}; choose one of {known}, or auto for a filter")
        module, _, name = MATCHERS[matcher].partition(":")
        made: Callable[..., Matcher] = getattr(import_module(module), name)
        return made
    if not callable(matcher):
        raise TypeError(f"a matcher is a name or a class that is called with a schema, not {matcher!r}")
    return matcher


def name_of(matcher: Factory) -> str:
    """Return the name of a matcher in messages and snapshots."""
    if isinstance(matcher, Mapping):
        return split("matcher", matcher, MATCHERS)[0]
    return matcher if isinstance(matcher, str) else getattr(matcher, "__name__", repr(matcher))


def make_matcher(matcher: Factory, schema: Schema, **options: Any) -> Matcher:
    """Make an empty matcher for a schema, with its options."""
    return factory_of(matcher)(schema, **options)
