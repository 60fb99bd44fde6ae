"""``python -m rtfilter``: the command line."""

from rtfilter.cli import main

raise SystemExit(main())
