"""`python -m bench.agreement`: figures of `codec-gateway bench` beside those of `make bench-wire` and `bench-cache`.

`ROUNDS TOKENS` say how often the two take turns and how long answers are when times and bytes are compared, which needs
a quiet machine. `--reuse` compares only ids processed and reused, which are the same on any machine. Prints the figure
of the bench here, that of the command, and their ratio; writes no file.
"""

import argparse

from bench.agreement import reuse, times

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.agreement", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rounds", type=int, nargs="?", default=6, help="rounds of ten requests of each way")
    parser.add_argument("tokens", type=int, nargs="?", default=64, help="of each answer")
    parser.add_argument("--reuse", action="store_true", help="ids processed and reused alone")
    chosen = parser.parse_args()
    reuse.main()
    if not chosen.reuse:
        times.main(chosen.rounds, chosen.tokens)
