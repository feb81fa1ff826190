"""Look for bytes that break a rule: ``python -m fuzz protocol --seconds 60``.

What is found is written to fuzz/corpus/TARGET, where the suite tries it from then on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def main() -> None:
    """Fuzz one target for a while; the exit code is 0 where nothing was found."""
    import atheris

    with atheris.instrument_imports(include=["server.net", "server.spaces", "server.learn"]):
        from fuzz.targets import TARGETS
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument(
        "--seconds", type=int, default=60, help="how long to look (default: %(default)s)"
    )
    options = parser.parse_args()
    seeds = CORPUS / options.target
    fresh = Path("runs") / "fuzz" / options.target  # grows with every run; not kept
    fresh.mkdir(parents=True, exist_ok=True)
    words = [sys.argv[0], str(fresh), str(seeds), f"-max_total_time={options.seconds}"]
    words += ["-max_len=8192", "-timeout=20", f"-artifact_prefix={seeds}/", "-verbosity=1"]
    atheris.Setup(words, TARGETS[options.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
