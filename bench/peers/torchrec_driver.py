#!/usr/bin/env python3
"""Drives TorchRec on CPU: two processes by gloo, tables placed whole, fused row-wise Adagrad.

    torchrec_driver.py TABLES ROWS DIM IDS BAG DTYPE EXPONENT

Each process has half of the batch and half of the tables, and one thread. "lookup" is the forward
pass of the embeddings, "step" that and the backward pass with the update. Verifies both, says
READY, and then measures one case for each line of its input; bench/peers/driver_loop.h describes
them. Requests go one at a time, as the passes are collective.
"""

import json
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch_rpc_driver import LEARNING_RATE, Shape, draw_requests

PROCESSES = 2
INITIAL_VALUE = 0.25
REQUESTS_MAX = 16
COUNT_FIRST = 3
COUNT_MAX = 10_000


def build_model(shape):
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise
    from torchrec.distributed.types import ShardingEnv, ShardingPlan
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    tables = [
        EmbeddingBagConfig(
            name=f"t{i}",
            embedding_dim=shape.dim,
            num_embeddings=shape.rows,
            feature_names=[f"f{i}"],
            init_fn=lambda weights: weights.data.fill_(INITIAL_VALUE),
        )
        for i in range(shape.tables)
    ]
    module = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    apply_optimizer_in_backward(RowWiseAdagrad, module.parameters(), {"lr": LEARNING_RATE})
    sharder = EmbeddingBagCollectionSharder()
    places = {f"t{i}": table_wise(rank=i % PROCESSES) for i in range(shape.tables)}
    plan = construct_module_sharding_plan(
        module, places, sharder, local_size=PROCESSES, world_size=PROCESSES, device_type="cpu"
    )
    return DistributedModelParallel(
        module,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=ShardingPlan(plan={"": plan}),
        sharders=[sharder],
    )


def inputs_of(shape, rank):
    """This process's half of each request's bags."""
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    first_rows = torch.arange(shape.tables).unsqueeze(1) * shape.rows
    ids_each = shape.ids // PROCESSES
    lengths = torch.full((shape.tables * ids_each // shape.bag,), shape.bag, dtype=torch.int32)
    for request in draw_requests(shape)[:REQUESTS_MAX]:
        ids = request.reshape(shape.tables, shape.ids) - first_rows
        mine = ids[:, rank * ids_each : (rank + 1) * ids_each].reshape(-1)
        keys = [f"f{i}" for i in range(shape.tables)]
        yield KeyedJaggedTensor(keys=keys, values=mine, lengths=lengths)


class Trainer:
    """One process's part. Every process calls the same methods with the same arguments."""

    def __init__(self, shape, rank):
        self.shape = shape
        self.model = build_model(shape)
        self.inputs = list(inputs_of(shape, rank))
        self.next = 0

    def ask(self, operation, request):
        if operation == "lookup":
            with torch.no_grad():
                return self.model(request).values()
        values = self.model(request).values()
        values.backward(torch.ones_like(values))
        return values.detach()

    def verify(self):
        """The first step of row-wise Adagrad is the gradient's sign, however often a row is in a
        request; a request of one's own is looked up before and after it."""
        before = self.ask("lookup", self.inputs[0])
        self.ask("step", self.inputs[0])
        after = self.ask("lookup", self.inputs[0])
        bag = self.shape.bag
        for got, expected in ((before, INITIAL_VALUE), (after, INITIAL_VALUE - LEARNING_RATE)):
            if not torch.allclose(got, torch.full_like(got, expected * bag), atol=1e-4):
                sys.exit(f"TorchRec: rows are not {expected}, but {got.min()} to {got.max()}")

    def run(self, operation, count):
        """Seconds in all, and of each request."""
        latencies = []
        dist.barrier()
        began = time.perf_counter()
        for _ in range(count):
            started = time.perf_counter()
            self.ask(operation, self.inputs[self.next % len(self.inputs)])
            self.next += 1
            latencies.append(time.perf_counter() - started)
        dist.barrier()
        return time.perf_counter() - began, latencies


def lead(trainer, shape):
    """The process that has the input: tells the other what to run."""

    def run(operation, count):
        dist.broadcast_object_list([(operation, count)], src=0)
        return trainer.run(operation, count)

    print("READY", flush=True)
    for line in sys.stdin:
        _, operation, _, seconds = line.split()
        count, total = COUNT_FIRST, run(operation, COUNT_FIRST)[0]
        for share in (0.25, 1):  # The first part warms up.
            count = min(max(int(share * float(seconds) * count / total), COUNT_FIRST), COUNT_MAX)
            total, latencies = run(operation, count)
        answer = {
            "rows_per_second": count * shape.ids_per_request / total,
            "p50_ms": statistics.median(latencies) * 1e3,
        }
        print(json.dumps(answer), flush=True)
    dist.broadcast_object_list([("end", 0)], src=0)


def follow(trainer):
    while True:
        told = [None]
        dist.broadcast_object_list(told, src=0)
        operation, count = told[0]
        if operation == "end":
            return
        trainer.run(operation, count)


def run_process(rank, file, words):
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=PROCESSES)
    shape = Shape.parse(words)
    trainer = Trainer(shape, rank)
    trainer.verify()
    if rank == 0:
        lead(trainer, shape)
    else:
        follow(trainer)
    dist.destroy_process_group()


def main(words):
    if len(words) != 7:
        sys.exit("usage: torchrec_driver.py TABLES ROWS DIM IDS BAG DTYPE EXPONENT")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "rendezvous")
        context = torch.multiprocessing.get_context("spawn")
        process = context.Process(target=run_process, args=(1, file, words), daemon=True)
        process.start()
        run_process(0, file, words)
        process.join()


if __name__ == "__main__":
    main(sys.argv[1:])
