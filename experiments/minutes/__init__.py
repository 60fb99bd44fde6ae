"""A newcomer's first minutes: how long each first step takes where nothing is compiled or cached yet."""
