"""Processes that stand still."""

import os
import signal


def halt(process):
    """Stop a child process and wait until all its threads have stopped.

    A signal reaches a busy process late: until then it still answers.
    """
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
