"""The matchers that papers since 2011 measure themselves against, held to what their papers claim."""
