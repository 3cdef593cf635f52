"""The lesson "dropout": attention weights that are dropped at random in training."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, dropout_mask, table
from gpt.lessons.tutorials.causal import causal_weights

P, SEED = 0.5, 123  # the tutorials'
DRAWS = 500


def steps(material: Material) -> Iterator[Step]:
    """A mask, the weights after it, their mean, and a model after training."""
    words, seed = material.words, material.seed_or(SEED)
    T, both = len(words), {"rows": words, "columns": words}
    mask = dropout_mask((T, T), P, seed)
    yield Step(
        "Half are dropped, half are doubled",
        "A model that trains long on a short text memorises it. Dropout makes that harder: every "
        "step drops other weights at random, so that the model cannot rely on a single one "
        f"(Srivastava et al. 2014). With p = {P}, each number is dropped with chance {P}; those "
        f"that stay are divided by {1 - P}, so that the sum stays the same on average. Here is "
        f"dropout of a matrix of ones, seed {seed}:",
        "dropped = x × mask / (1 − p)",
        (table("dropout of ones", mask, **both, digits=0),),
        checks=(check_equal("only 0 and 2", mask * (mask - 2), 0, bound=0),),
    )
    weights = causal_weights(material)
    dropped = weights * mask
    yield Step(
        "Weights under the mask",
        "The causal weights of the lesson “causal”, with the same mask. Rows no longer sum to 1; a "
        "row may lose all its weights, and its context is then 0 in this step.",
        tables=(
            table("causal weights", weights, **both),
            table("weights after dropout", dropped, "causal_weights * dropout", **both),
            table("row sums", dropped.sum(dim=-1), "sum(weights_after_dropout)", columns=words),
        ),
    )
    masks = dropout_mask((DRAWS, T, T), P, seed)
    mean = (masks * weights).mean(dim=0)
    # The mean of n masks spreads by √(p / (1 − p) / n) around 1; an error above 5 times that is a
    # bug.
    luck = 5 * (P / (1 - P) / DRAWS) ** 0.5
    yield Step(
        "On average nothing is lost",
        f"The mean over {DRAWS} masks is nearly the weights themselves: this is why the kept "
        "weights are doubled.",
        tables=(table(f"mean of {DRAWS} dropouts", mean, **both),),
        checks=(check_equal("the mean differs only by chance", mean, weights, luck),),
    )
    yield Step(
        "Only while training",
        "A trained model computes with all its weights. In torch, model.eval() turns dropout off "
        "and model.train() on; `gptx sample` and `gptx attn` never drop anything. Usual values are "
        "0 to 0.2, not 0.5. In gptx: --attention-dropout for weights, --dropout for the outputs of "
        "layers.",
        notice="torch has drawn this mask with Intel’s library MKL. A torch without MKL draws "
        "another mask from the same seed.",
        checks=(
            check_equal(
                "dropout is off in evaluation mode", nn.Dropout(P).eval()(weights), weights, 0
            ),
        ),
    )
