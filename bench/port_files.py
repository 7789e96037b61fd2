"""Port files of Embla's programs, for the benches that start them."""

import json
import sys
import time


def await_file(path, process):
    """The ports that `process` has written to `path`, its --port-file. Ends this program if the
    process ends, or does not serve within a minute."""
    deadline = time.monotonic() + 60
    while not path.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"{process.args[0]} does not serve; its log: {path.with_suffix('.log')}")
        time.sleep(0.01)  # Until the other process has written the file.
    return json.loads(path.read_text())
