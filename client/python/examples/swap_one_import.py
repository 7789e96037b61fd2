"""torchrec_script.py with its rows in Embla: another import, and nothing else.

EMBLA_COORDINATOR=host:7070 EMBLA_ADMIN=host:7071 python swap_one_import.py
"""

import torch
from torch.distributed.optim import _apply_optimizer_in_backward
from torchrec import EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.optim import RowWiseAdagrad

from embla.torchrec import EmbeddingBagCollection

BATCH, STEPS, ROWS = 256, 200, 2_000


def make_model():
    tables = [
        EmbeddingBagConfig(name=name, embedding_dim=16, num_embeddings=ROWS, feature_names=[name])
        for name in ("clicks", "page")
    ]
    model = torch.nn.ModuleDict(
        {
            "rows": EmbeddingBagCollection(tables=tables),
            "over": torch.nn.Sequential(
                torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
            ),
        }
    )
    _apply_optimizer_in_backward(RowWiseAdagrad, model["rows"].parameters(), {"lr": 0.1})
    return model


def make_batch(generator, truth):
    """Bags of up to four clicks and one page; the label follows what the ids are worth."""
    lengths = torch.cat(
        [torch.randint(0, 5, (BATCH,), generator=generator), torch.ones(BATCH, dtype=torch.long)]
    )
    ids = torch.randint(0, ROWS, (int(lengths.sum()),), generator=generator)
    bags = torch.arange(BATCH).repeat(2).repeat_interleave(lengths)
    worth = torch.zeros(BATCH).index_add(0, bags, truth[ids])
    return KeyedJaggedTensor(["clicks", "page"], ids, lengths=lengths), (worth > 0).float()


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    truth = torch.randn(ROWS, generator=generator)
    model = make_model()
    optimizer = torch.optim.Adam(model["over"].parameters(), lr=1e-3)
    for step in range(STEPS):
        features, labels = make_batch(generator, truth)
        optimizer.zero_grad()
        logits = model["over"](model["rows"](features).values()).squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step} loss {loss.item():.4f}")
    return loss.item()


if __name__ == "__main__":
    main()
