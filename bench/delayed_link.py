"""A TCP link of loopback that takes its time, for the benches."""

import collections
import selectors
import socket
import threading
import time

CHUNK_BYTES = 256 << 10
WAITING_BYTES_MAX = 64 << 20  # In one direction; then it is not read until some are written.


class _Direction:
    """Bytes from `source` on their way to `target`: when they are due, and what they are."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.waiting = collections.deque()
        self.bytes = 0
        self.is_read_out = False

    def read(self, delay):
        try:
            data = self.source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        self.is_read_out = not data
        if data:
            self.waiting.append((time.monotonic() + delay, memoryview(data)))
            self.bytes += len(data)

    def write(self):
        """Writes what is due, as far as it can be written now."""
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            due, data = self.waiting[0]
            try:
                written = self.target.send(data)
            except BlockingIOError:
                return
            self.bytes -= written
            if written == len(data):
                self.waiting.popleft()
            else:
                self.waiting[0] = (due, data[written:])


class DelayedLink(threading.Thread):
    """Passes on to `upstream` (host, port) whoever connects to `address`, each byte `delay` seconds
    after it has come, in both directions. `delay` and `upstream` may be changed at any time."""

    def __init__(self):
        super().__init__(daemon=True)
        self.delay = 0.0
        self.upstream = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.pairs = []  # Pairs of directions.
        self.start()

    def run(self):
        while True:
            selector = selectors.DefaultSelector()
            with selector:
                for ready in self.wait(selector):
                    if ready is self.listener:
                        self.accept()
                    else:
                        self.read(ready)
            self.write()

    def wait(self, selector):
        """Sockets that can be read, once one can be, or something can be written."""
        events = {self.listener: selectors.EVENT_READ}
        timeout = None
        now = time.monotonic()
        for direction in (d for pair in self.pairs for d in pair):
            if not direction.is_read_out and direction.bytes < WAITING_BYTES_MAX:
                events[direction.source] = events.get(direction.source, 0) | selectors.EVENT_READ
            if direction.waiting:
                left = direction.waiting[0][0] - now
                if left <= 0:
                    events[direction.target] = (events.get(direction.target, 0)
                                                | selectors.EVENT_WRITE)
                else:
                    timeout = left if timeout is None else min(timeout, left)
        for sock, wanted in events.items():
            selector.register(sock, wanted)
        return [key.fileobj for key, mask in selector.select(timeout)
                if mask & selectors.EVENT_READ]

    def accept(self):
        near, _ = self.listener.accept()
        try:
            far = socket.create_connection(self.upstream)
        except OSError:
            near.close()
            return
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pairs.append((_Direction(near, far), _Direction(far, near)))

    def read(self, sock):
        for direction in (d for pair in self.pairs for d in pair):
            if direction.source is sock:
                try:
                    direction.read(self.delay)
                except OSError:
                    direction.is_read_out = True

    def write(self):
        kept = []
        for pair in self.pairs:
            try:
                for direction in pair:
                    direction.write()
                is_over = any(d.is_read_out and not d.waiting for d in pair)
            except OSError:
                is_over = True
            if is_over:
                for direction in pair:
                    direction.source.close()
            else:
                kept.append(pair)
        self.pairs = kept
