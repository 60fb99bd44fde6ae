"""Random conditions that multiply out to no more than a filter takes."""

from functools import partial

from predicate_cases import patterns, sources
from rtfilter import PredicateError, Schema
from rtfilter.predicates.predicate import parse


def sources_within(types):
    """`predicate_cases.sources`, but those that have too many alternatives; another refusal is an error."""
    return sources(types).filter(partial(_is_within, Schema(types)))


def patterns_within(types):
    """`predicate_cases.patterns`, likewise."""
    return patterns(types).filter(partial(_is_within, Schema(types)))


def _is_within(schema, drawn):
    try:
        parse(drawn[0], schema)
    except PredicateError as error:
        if "expands" not in str(error):
            raise
        return False
    return True
