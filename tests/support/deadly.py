"""The command line in a process that may be made to die: ``python -m tests.support.deadly CALL N ARGUMENTS...``

The process kills itself, as kill -9 would, when it is about to make its N-th call of os.CALL (fsync or replace). These
are the calls that put a configuration, a log or a checkpoint on the disk. N = 0: never. ``CALL:SECONDS`` kills it that
much later, wherever it then is, and ``CALL:stop`` stops it, so that a test has all the time it needs to do something to
it: without that, a test on a busy machine comes too late.
"""

import os
import signal
import sys
from typing import Any

from minadv.cli import main


def arm(call: str, n: int) -> None:
    name, _, how = call.partition(":")
    real, calls = getattr(os, name), iter(range(1, sys.maxsize))

    def deadly(*args: Any) -> Any:
        if next(calls) == n:
            if how in ("", "stop"):
                os.kill(os.getpid(), signal.SIGSTOP if how else signal.SIGKILL)
            else:
                signal.setitimer(signal.ITIMER_REAL, float(how))  # whose signal nobody handles: it ends like the other
        return real(*args)

    setattr(os, name, deadly)


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
