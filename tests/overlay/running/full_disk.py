"""`rtfilter`, whose database cannot be written while a file is there: `full_disk.py FILE ARGUMENTS`."""

import sys
from pathlib import Path

from rtfilter.cli import main
from rtfilter.overlay.running import broker_process
from rtfilter.store import database

full, arguments = Path(sys.argv[1]), sys.argv[2:]
begin_of = database._begin


def begin(connection):
    connection.exec_driver_sql(f"PRAGMA query_only = {int(full.exists())}")
    begin_of(connection)


database._begin = begin
broker_process._warm = lambda: None  # which takes each broker a second, though its fork has loaded everything
sys.exit(main(arguments))
