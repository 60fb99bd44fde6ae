"""``python -m service.soak [SECONDS [SEED]]``"""

import json
import sys
import tempfile
from pathlib import Path

from service.soak.run import run

seconds, seed = [*map(int, sys.argv[1:]), *(600, 0)[len(sys.argv) - 1 :]]
with tempfile.TemporaryDirectory() as folder:
    print(json.dumps(run(Path(folder), seed, seconds / 2, seconds / 2), indent=1))
