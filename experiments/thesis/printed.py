"""The numbers of the thesis's tables (Novák 2013), for comparison.

Its machine was an Intel Core i5-760 at 2.8 GHz with Java 7, one thread. ``MT`` is its Matching Tree, ``CAM``
its Counting with counters in a map, ``CAS`` that with counters in the filters, and Siena the original.
"""

from __future__ import annotations

from typing import Final

COLUMNS: Final = ("MT", "CAM", "CAS", "Siena")

RATIOS: Final[dict[str, tuple[float, float, float, float]]] = {
    "Match_25_random": (1.037, 1.631, 1.007, 1.304),
    "Match_50_random": (1.003, 1.608, 1.034, 1.246),
    "Match_75_random": (1.004, 1.716, 1.170, 1.337),
    "Match2_25_random": (1.000, 2.145, 1.463, 1.727),
    "Match2_50_random": (1.000, 1.958, 1.360, 1.542),
    "Match2_75_random": (1.000, 1.874, 1.295, 1.420),
    "Match_25": (1.583, 1.579, 1.000, 1.131),
    "Match_50": (1.302, 1.656, 1.030, 1.047),
    "Match_75": (1.172, 1.734, 1.136, 1.096),
    "Match2_25": (1.000, 1.878, 1.266, 1.236),
    "Match2_50": (1.009, 1.756, 1.169, 1.100),
    "Match2_75": (1.038, 1.739, 1.149, 1.032),
    "Match_100": (1.109, 1.741, 1.180, 1.010),
}
"""Table 5.2: time to the fastest one's, mean of the four sizes."""
AVERAGES: Final = (1.097, 1.770, 1.174, 1.248)
"""The last lines of Table 5.2: means of its columns."""
WINS: Final = (25, 0, 21, 6)
"""And how often each is the fastest, of 52."""

FIRST: Final[tuple[tuple[float, tuple[float, float, float, float]], ...]] = (
    (220, (1.077, 1.564, 1.000, 1.332)),
    (21.8, (1.046, 1.564, 1.000, 1.326)),
    (45.8, (1.000, 1.644, 1.028, 1.264)),
    (93.7, (1.026, 1.750, 1.000, 1.292)),
)
"""Table 5.1, Match_25_random: the fastest in milliseconds, and the ratios, by size."""

MILLISECONDS: Final[dict[str, tuple[float, float, float, float]]] = {
    "Match_25_random": (344, 34.1, 75.3, 164),
    "Match_50_random": (729, 72.8, 152.3, 361),
    "Match_75_random": (1104, 111.2, 227.4, 750),
    "Match2_25_random": (1245, 127.1, 283.6, 941),
    "Match2_50_random": (1317, 130.4, 306.4, 995),
    "Match2_75_random": (1372, 138.3, 332.1, 1058),
    "Match_25": (300, 31.1, 69, 143),
    "Match_50": (705, 69.6, 146.7, 348),
    "Match_75": (1053, 110.2, 224.9, 717),
    "Match2_25": (1181, 117.1, 269.3, 896),
    "Match2_50": (1267, 125.9, 298.8, 936),
    "Match2_75": (1417, 133.1, 314.7, 1010),
    "Match_100": (1394, 139.5, 336.2, 1058),
}
"""Table 5.3: milliseconds of CAM, by size."""
