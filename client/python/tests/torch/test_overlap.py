"""How much of a lookup a pipeline hides, when lookups and the dense part take a known time."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from small_model import FEATURES, batch
from torch import nn

from embla.torch import EmbeddingBagSet, TrainPipeline

# Both a lookup and whatever may overlap with it take so long, which is much beside what a loaded
# machine adds.
SECONDS = 0.05
STEPS = 12


class TimedTicket:
    """A lookup that takes SECONDS from its start, however fast the service is."""

    def __init__(self, ticket: Any) -> None:
        self._ticket = ticket
        self._end = time.monotonic() + SECONDS

    def wait(self, timeout: float | None = None) -> Any:
        time.sleep(max(self._end - time.monotonic(), 0.0))
        return self._ticket.wait(timeout)

    def done(self) -> bool:
        return time.monotonic() >= self._end and bool(self._ticket.done())


class TimedClient:
    """Passes everything on to ``client``; lookups take SECONDS."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def lookup_packed(self, *arguments: Any, **options: Any) -> TimedTicket:
        return TimedTicket(self._client.lookup_packed(*arguments, **options))

    def lookup_packed_now(self, *arguments: Any, **options: Any) -> None:
        time.sleep(SECONDS)
        self._client.lookup_packed_now(*arguments, **options)


class Model(nn.Module):
    """Rows, and waits in place of a dense part; the model is its own optimizer."""

    def __init__(self, client: Any, forward: float, backward: float, optimizer: float) -> None:
        super().__init__()
        self.rows = EmbeddingBagSet(client, FEATURES)
        self.forward_seconds, self.backward_seconds = forward, backward
        self.optimizer_seconds = optimizer

    def forward(self, inputs):
        loss = self.rows(*inputs).square().mean()
        loss.register_hook(lambda gradient: time.sleep(self.backward_seconds))
        time.sleep(self.forward_seconds)
        return loss, None

    def step(self):
        time.sleep(self.optimizer_seconds)


def seconds_of_a_step(model, staleness):
    """Return the shortest of STEPS steps, which is the one that the machine disturbed least."""
    batches = itertools.cycle([batch(seed) for seed in range(4)])
    pipeline = staleness is not None and TrainPipeline(
        model, model, prefetch=lambda inputs: model.rows.prefetch(*inputs), staleness=staleness
    )
    steps = []
    for _ in range(STEPS):
        start = time.perf_counter()
        if pipeline:
            pipeline.progress(batches)
        else:
            model(next(batches))[0].backward()
            model.step()
        steps.append(time.perf_counter() - start)
    return min(steps)


@pytest.mark.parametrize(
    ("staleness", "waits", "least"),
    [(0, (0.0, 0.0, SECONDS), 0.6), (1, (SECONDS / 2, SECONDS / 2, 0.0), 0.9)],
    ids=["staleness 0 behind the optimizer", "staleness 1 behind forward and backward"],
)
def test_a_pipeline_hides_its_lookups(client, staleness, waits, least):
    plain = seconds_of_a_step(Model(TimedClient(client), *waits), None)
    pipelined = seconds_of_a_step(Model(TimedClient(client), *waits), staleness)
    assert plain > 2 * SECONDS
    hidden = (plain - pipelined) / SECONDS
    assert hidden > least, f"{hidden:.0%} of a lookup is hidden"
