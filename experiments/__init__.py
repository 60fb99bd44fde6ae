"""Seeded workloads and the measurements made with them: `python -m experiments --help`.

Needs the extra: ``pip install 'rtree-filter[replay]'``.
"""
