"""The command line in a process that may be made to die: ``python -m tests.support.deadly CALL N ARGUMENTS...``

The process kills itself, as kill -9 would, when it is about to make its N-th call of os.CALL (fsync or replace). These
are the calls that put a configuration, a log or a checkpoint on the disk. N = 0: never.
"""

import os
import signal
import sys
from typing import Any

from minadv.cli import main


def arm(call: str, n: int) -> None:
    real, calls = getattr(os, call), iter(range(1, sys.maxsize))

    def deadly(*args: Any) -> Any:
        if next(calls) == n:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)

    setattr(os, call, deadly)


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
