"""Imports all modules of rtfilter, and prints what was imported as JSON. Run by tests, in a fresh process."""

import importlib
import json
import pkgutil
import sys

import rtfilter

OTHERS = ("adaptive", "scheduler", "experiments")


def walk(package, done, missing):
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.name == "rtfilter.__main__":  # runs the command line
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] in ("rtfilter", *OTHERS):
                raise
            missing[found.name] = str(error)
            continue
        done.append(found.name)
        if found.ispkg:
            walk(module, done, missing)


done, missing = [], {}
walk(rtfilter, done, missing)
others = [name for name in sys.modules if name.partition(".")[0] in OTHERS]
print(json.dumps({"file": rtfilter.__file__, "done": done, "missing": missing, "others": others}))
