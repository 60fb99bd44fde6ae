"""``python -m service.kills [KILLS [SEED]]``"""

import sys
import tempfile
from pathlib import Path

from service.kills.run import run

kills, seed = [*map(int, sys.argv[1:]), *(200, 0)[len(sys.argv) - 1 :]]
with tempfile.TemporaryDirectory() as folder:
    print(dict(run(Path(folder), kills, seed)))
