#!/usr/bin/env python3
"""Drives PyTorch's RPC: two processes, and on the server a dense tensor that is indexed by rows.

    torch_rpc_driver.py TABLES ROWS DIM IDS BAG DTYPE EXPONENT

The rows of all tables lie in one tensor, one table after the other. Verifies the server's results
against initial values and steps that are known, says READY, and then measures one case for each
line of its input; bench/peers/driver_loop.h describes them.
"""

import collections
import json
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass

import torch
import torch.multiprocessing
from torch.distributed import rpc

LEARNING_RATE = 0.01
EPSILON = 1e-8
VERIFY_GRADIENT = 0.5
TIMED_GRADIENT = 1e-4  # No number of updates drives a table to infinity.
REQUESTS_MAX = 64
IDS_MAX = 1 << 23
INITIAL_VALUES = 1021
FILL_ROWS = 1 << 18


@dataclass(frozen=True)
class Shape:
    tables: int
    rows: int
    dim: int
    ids: int
    bag: int
    dtype: torch.dtype
    exponent: float

    @staticmethod
    def parse(words):
        tables, rows, dim, ids, bag = map(int, words[:5])
        dtype = torch.bfloat16 if words[5] == "bf16" else torch.float32
        return Shape(tables, rows, dim, ids, bag, dtype, float(words[6]))

    @property
    def ids_per_request(self):
        return self.tables * self.ids


def initial_rows(ids, shape):
    mixed = ids.unsqueeze(1) * 31 + torch.arange(shape.dim) * 7
    values = (mixed % INITIAL_VALUES).float() * (0.2 / INITIAL_VALUES) - 0.1
    return values.to(shape.dtype)


def draw_requests(shape):
    """Row numbers, one request per row of the result."""
    generator = torch.Generator().manual_seed(1)
    count = min(max(IDS_MAX // shape.ids_per_request, 4), REQUESTS_MAX)
    size = (count, shape.tables, shape.ids)
    if shape.exponent == 0:
        ids = torch.randint(shape.rows, size, generator=generator)
    else:
        ranks = torch.arange(1, shape.rows + 1, dtype=torch.float64)
        weights = torch.cumsum(ranks**-shape.exponent, 0)
        drawn = torch.rand(size, generator=generator, dtype=torch.float64) * weights[-1]
        ids = torch.searchsorted(weights, drawn).clamp_(max=shape.rows - 1)
        # Hot rows are scattered over the table: this step visits every row once.
        step = 2654435761 % shape.rows
        while math.gcd(step, shape.rows) != 1:
            step += 1
        ids = ids * step % shape.rows
    ids += torch.arange(shape.tables).unsqueeze(1) * shape.rows
    return ids.reshape(count, shape.ids_per_request)


# ---------------------------------------------------------------------------- server

server = {}


def fill(shape):
    rows = shape.tables * shape.rows
    server["weights"] = torch.empty(rows, shape.dim, dtype=shape.dtype)
    server["squares"] = torch.zeros(rows)
    for begin in range(0, rows, FILL_ROWS):
        ids = torch.arange(begin, min(begin + FILL_ROWS, rows))
        server["weights"][ids] = initial_rows(ids, shape)


# On a CPU, index_select and scatter_add_ are several times faster than [ids] and index_add_.


def lookup(ids):
    return server["weights"].index_select(0, ids)


def add_rows(matrix, ids, rows):
    matrix.scatter_add_(0, ids.unsqueeze(1).expand_as(rows), rows)


def sgd(ids, gradients):
    add_rows(server["weights"], ids, gradients * -LEARNING_RATE)


def rowwise_adagrad(ids, gradients):
    rows, place = torch.unique(ids, return_inverse=True)
    sums = torch.zeros(len(rows), gradients.shape[1])
    add_rows(sums, place, gradients)
    squares = server["squares"][rows] + sums.square().mean(1)
    server["squares"][rows] = squares
    rates = LEARNING_RATE / (squares.sqrt() + EPSILON)
    add_rows(server["weights"], rows, sums * -rates.unsqueeze(1))


# ---------------------------------------------------------------------------- client


class Client:
    def __init__(self, shape):
        self.shape = shape
        self.requests = draw_requests(shape)
        self.gradients = torch.full((shape.ids_per_request // shape.bag, shape.dim), TIMED_GRADIENT)
        rpc.rpc_sync("server", fill, args=(shape,), timeout=0)

    def begin(self, operation, ids, gradients):
        """A future of the reply."""
        if operation == "lookup":
            return rpc.rpc_async("server", lookup, args=(ids,))
        if self.shape.bag > 1:
            gradients = gradients.repeat_interleave(self.shape.bag, 0)
        function = {"sgd": sgd, "rowwise_adagrad": rowwise_adagrad}[operation]
        return rpc.rpc_async("server", function, args=(ids, gradients))

    def end(self, operation, future):
        """Waits, and brings the rows of a lookup into the form that a model wants."""
        reply = future.wait()
        if operation != "lookup":
            return None
        bags = (-1, self.shape.bag, self.shape.dim)
        return reply.float() if self.shape.bag == 1 else reply.float().reshape(bags).sum(1)

    def call(self, operation, ids, gradients):
        return self.end(operation, self.begin(operation, ids, gradients))

    def verify(self):
        ids = self.requests[0]
        bags = (-1, self.shape.bag, self.shape.dim)
        expected = initial_rows(ids, self.shape).float()
        gradients = torch.full_like(self.gradients, VERIFY_GRADIENT)
        _, place, counts = torch.unique(ids, return_inverse=True, return_counts=True)
        # Row-wise Adagrad's first step is the gradient's sign, however often a row is there.
        steps = {
            "lookup": 0,
            "sgd": counts[place].unsqueeze(1) * VERIFY_GRADIENT,
            "rowwise_adagrad": 1,
        }
        for operation, step in steps.items():
            if operation != "lookup" and self.shape.dtype != torch.float32:
                continue
            if operation != "lookup":
                self.call(operation, ids, gradients)
            expected = expected - LEARNING_RATE * step
            got = self.call("lookup", ids, None)
            if not torch.allclose(got, expected.reshape(bags).sum(1), rtol=1e-4, atol=1e-5):
                sys.exit(f"torch RPC: wrong rows after {operation}")

    def run(self, operation, in_flight, seconds):
        """Rows per second, and the median latency in milliseconds."""
        waiting = collections.deque()
        latencies = []

        def end_oldest():
            started, future = waiting.popleft()
            self.end(operation, future)
            latencies.append(time.perf_counter() - started)

        began = time.perf_counter()
        while not latencies or time.perf_counter() - began < seconds:
            number = (len(latencies) + len(waiting)) % len(self.requests)
            started = time.perf_counter()
            waiting.append((started, self.begin(operation, self.requests[number], self.gradients)))
            if len(waiting) == in_flight:
                end_oldest()
        while waiting:
            end_oldest()
        rate = len(latencies) / (time.perf_counter() - began)
        return rate * self.shape.ids_per_request, statistics.median(latencies) * 1e3


def serve(shape):
    client = Client(shape)
    client.verify()
    print("READY", flush=True)
    for line in sys.stdin:
        _, operation, in_flight, seconds = line.split()
        client.run(operation, int(in_flight), float(seconds) / 4)  # Warms up.
        rate, p50 = client.run(operation, int(in_flight), float(seconds))
        print(json.dumps({"rows_per_second": rate, "p50_ms": p50}), flush=True)


def run_process(name, rank, file, words):
    # RPC has threads of its own; two processes whose operations have several each slow each other.
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{file}")
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=options)
    if name == "client":
        serve(Shape.parse(words))
    rpc.shutdown()


def main(words):
    warnings.filterwarnings("ignore")
    if len(words) != 7:
        sys.exit("usage: torch_rpc_driver.py TABLES ROWS DIM IDS BAG DTYPE EXPONENT")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("TP_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "rendezvous")
        context = torch.multiprocessing.get_context("spawn")
        process = context.Process(target=run_process, args=("server", 1, file, words), daemon=True)
        process.start()
        run_process("client", 0, file, words)
        process.join()


if __name__ == "__main__":
    main(sys.argv[1:])
