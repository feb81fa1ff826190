"""One BLAS thread, as the client itself asks for: two cost far more than they give."""

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
