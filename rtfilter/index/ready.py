"""Stub."""

_ready = False


def ready():
    return _ready


def load(progress=None):
    global _ready
    from rtfilter.cli.warm import compile_tree

    compile_tree()
    _ready = True


def load_aside():
    load()
