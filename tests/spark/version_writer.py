"""A program that adds versions: `python version_writer.py FOLDER NAME COUNT`; prints the numbers it made."""

import sys

from rtfilter.spark import versions

folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for turn in range(count):
    while True:
        number = max(versions.numbers(folder), default=0) + 1
        try:
            versions.publish(folder, number, f"{name} {turn}".encode())
        except versions.VersionTakenError:
            continue
        print(number, flush=True)
        break
