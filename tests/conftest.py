"""One thread of linear algebra a test process: pytest-xdist already uses every core."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
