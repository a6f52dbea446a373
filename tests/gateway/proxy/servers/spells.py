"""Writes the result of a call as the environment variable RESULT spells it."""

import os
import sys

from transport import serve


def write(request):
    sys.stdout.write(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{os.environ["RESULT"]}}}\n')
    sys.stdout.flush()


serve(write)
