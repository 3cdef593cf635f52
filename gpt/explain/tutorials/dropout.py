"""The lesson "dropout": weights that are missing at random while a model learns."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from gpt.explain.lesson import Material, Step
from gpt.explain.rng import dropout_mask
from gpt.explain.tables import same, table
from gpt.explain.tutorials.causal import causal_weights

P, SEED = 0.5, 123  # the tutorials'
DRAWS = 500


def steps(material: Material) -> Iterator[Step]:
    """A mask, the weights under it, their mean, and the end of training."""
    words, seed = material.words, SEED if material.seed is None else material.seed
    T, both = len(words), {"rows": words, "columns": words}
    mask = dropout_mask((T, T), P, seed)
    yield Step(
        "Half are dropped, half are doubled",
        "A model that trains long on a short text learns it by heart. Dropout makes that harder: "
        "at every step some weights are missing, each time others, so that nothing can rely on a "
        f"single one (Srivastava et al. 2014). With p = {P}, each number is dropped with chance "
        f"{P}; those that stay are divided by {1 - P}, so that the sum stays the same on average. "
        f"On a matrix of ones, seed {seed}:",
        "dropped = x × mask / (1 − p)",
        (table("dropout of ones", mask, **both, digits=0),),
        checks=(same("only 0 and 2", mask * (mask - 2), torch.zeros(T, T), 0),),
    )
    weights = causal_weights(material)
    yield Step(
        "Weights under the mask",
        "The causal weights of the lesson “causal”, with the same mask. Rows no longer sum to 1; "
        "a row may lose everything, and its context is then 0 for this step.",
        tables=(
            table("causal weights", weights, **both),
            table("weights after dropout", weights * mask, **both),
            table("row sums", (weights * mask).sum(dim=-1), columns=words),
        ),
    )
    masks = dropout_mask((DRAWS, T, T), P, seed)
    mean = (masks * weights).mean(dim=0)
    # A mean of n masks spreads by √(p / (1 − p) / n) around 1; five times that is a bug, not luck.
    luck = 5 * (P / (1 - P) / DRAWS) ** 0.5
    yield Step(
        "On average nothing is lost",
        f"The mean over {DRAWS} masks is nearly the weights themselves: that is what the doubling "
        "is for.",
        tables=(table(f"mean of {DRAWS} dropouts", mean, **both),),
        checks=(same("the mean differs only by chance", mean, weights, luck),),
    )
    yield Step(
        "Only while training",
        "A trained model computes with all its weights. In torch, model.eval() turns dropout off "
        "and model.train() on; `gptx sample` and `gptx attn` never drop anything. Usual "
        "values are 0 to 0.2, not 0.5. In gptx: --attention-dropout for weights, --dropout for "
        "what the layers add.",
        notice="The mask above is the one that Intel’s MKL draws; on machines where torch draws "
        "without it, the same seed gives another.",
        checks=(
            same("dropout is off in evaluation mode", nn.Dropout(P).eval()(weights), weights, 0),
        ),
    )
