"""The running average: what it is after each step, and that it does not change training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import TEXT, TINY, corpus_of, manifest_of

from gpt.config import ModelConfig
from gpt.model import GPT, initialise
from gpt.storage.runs import new_run
from gpt.training.evaluation import evaluate
from gpt.training.events import Evaluated
from gpt.training.optim import Average
from gpt.training.trainer import Job, Trainer


@pytest.mark.parametrize("tied", [True, False])
def test_the_average_is_an_exponential_moving_average(tied: bool) -> None:
    model = GPT(ModelConfig(vocab_size=5, **TINY, tied=tied))
    initialise(model, seed=1)
    average = Average(model, decay=0.5)
    expected = model.lm_head.weight.detach().clone()
    for step in range(1, 30):
        model.lm_head.weight.data.normal_()
        average.update(model, step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.lm_head.weight.detach()
        torch.testing.assert_close(average.model.lm_head.weight, expected)
    assert (average.model.lm_head.weight is average.model.token_embedding.weight) == tied
    assert not any(parameter.requires_grad for parameter in average.model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_averaged_weights_are_evaluated_and_saved(tmp_path: Path) -> None:
    corpus = corpus_of(TEXT, tmp_path)
    trainers = {}
    for decay in (0.0, 0.9):
        run = new_run(tmp_path / "checkpoints", f"decay-{decay}")
        manifest = manifest_of(corpus, {"average": decay, "learning_rate": 0.02})
        trainers[decay] = Trainer(run, Job(corpus, manifest))
        events = [event for event in trainers[decay].events() if isinstance(event, Evaluated)]
        kept = trainers[decay].kept
        assert events[-1].val_loss == evaluate(kept, trainers[decay].val, "cpu").nats
        saved = run.last().model().tensors["lm_head.weight"]
        assert torch.equal(torch.tensor(saved), kept.lm_head.weight.detach())
    plain, averaged = trainers[0.0], trainers[0.9]
    assert torch.equal(plain.model.lm_head.weight, averaged.model.lm_head.weight)
    assert not torch.equal(averaged.kept.lm_head.weight, averaged.model.lm_head.weight)
