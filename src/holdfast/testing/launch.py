"""Become a server that dies with the process that wanted it.

Run as a script: `launch.py PARENT_PID SIGNAL UID GID COMMAND...` (UID -1 keeps the user). The
request to be signalled is made here, after the change of user and before the command takes
over, because the kernel forgets it on a change of user and keeps it across a plain exec.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, death_signal, uid, gid = (int(text) for text in sys.argv[1:5])
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit("the parent is gone already")
    os.execv(sys.argv[5], sys.argv[5:])


if __name__ == "__main__":
    main()
