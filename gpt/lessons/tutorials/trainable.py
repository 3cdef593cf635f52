"""The lesson "trainable": three matrices, first as parameters, then as Linear layers."""

from __future__ import annotations

from collections.abc import Iterator

import torch.nn.functional as F

from gpt.lessons.ladder import (
    PARTS,
    ParameterAttention,
    SelfAttention,
    attend,
    from_nothing,
    to_parameters,
)
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, input_tensor, table, torch_seed

D_OUT = 2
PARAMETER_SEED, LINEAR_SEED = 123, 789  # the tutorials'


def steps(material: Material) -> Iterator[Step]:
    """One query by hand, a module for all words, and the same module with nn.Linear."""
    x, words, query = input_tensor(material), material.words, material.query
    word, width = words[query], x.shape[1]
    seed, linear_seed = material.seed_or(PARAMETER_SEED), material.seed_or(LINEAR_SEED)
    with torch_seed(seed):
        attention = ParameterAttention(width, D_OUT).double()
    yield Step(
        "Three matrices",
        "Without matrices, a word’s row is its query, key and value. Training needs numbers that "
        "it can change: one matrix computes the query, one the key that queries are compared with, "
        f"one the value that goes into the mean. Each turns {width} numbers into {D_OUT}. They "
        f"start as random numbers between 0 and 1, seed {seed}.",
        "queries = X · W_query    keys = X · W_key    values = X · W_value",
        (
            table("inputs", x, rows=words),
            *(table(f"W_{part}", getattr(attention, part)) for part in PARTS),
        ),
        "Usually output and input are equally wide; here the output is narrower, to tell them "
        "apart.",
    )
    queries, keys, values = x @ attention.query, x @ attention.key, x @ attention.value
    yield Step(
        f"Query, key and value of “{word}”",
        f"The row of “{word}” is multiplied by each matrix. The other words need only keys and "
        "values here.",
        f"query = x[{query}] · W_query",
        (
            table(f"x of “{word}”", x[query], f"inputs[{query}]"),
            table(f"query of “{word}”", queries[query], "x @ W_query"),
            table(f"key of “{word}”", keys[query], "x @ W_key"),
            table(f"value of “{word}”", values[query], "x @ W_value"),
            table("keys", keys, "inputs @ W_key", rows=words),
            table("values", values, "inputs @ W_value", rows=words),
        ),
    )
    scores = keys @ queries[query]
    with_itself = queries[query].dot(keys[query])
    yield Step(
        "Scores",
        "As in the lesson “simple”, but the query is now compared with keys.",
        "score[j] = query · key[j]",
        (
            table("score with itself", with_itself[None], "query @ key"),
            table(f"scores of “{word}”", scores, "keys @ query", columns=words),
        ),
        checks=(check_equal("one product = that of all", with_itself, scores[query]),),
    )
    scaled = scores / D_OUT**0.5
    weights = F.softmax(scaled, dim=-1)
    yield Step(
        "Scale, then softmax",
        "Scores are divided by the root of the head size, the number of columns of a key. The more "
        "columns, the wider the products spread, and softmax of widely spread scores selects one "
        "word only and hardly learns. This is scaled dot-product attention (Vaswani et al. 2017).",
        f"weights = softmax(scores / √{D_OUT})",
        (
            table("scaled", scaled, f"scores / sqrt({D_OUT})", columns=words),
            table(f"weights of “{word}”", weights, "softmax(scaled)", columns=words),
        ),
    )
    context = weights @ values
    yield Step(
        "Context",
        "The context is now a mean of the values, not of the rows themselves.",
        "context = weights · values",
        (table(f"context of “{word}”", context, "weights @ values"),),
    )
    outputs, plain = attention(x), from_nothing(width)(x)
    rule = f"softmax(inputs @ W_query @ keys.T / sqrt({D_OUT})) @ values"
    yield Step(
        "As a module",
        "`ParameterAttention` in `gpt/lessons/ladder.py` holds the three matrices and computes all "
        "of this for every word.",
        tables=(table("contexts of ParameterAttention", outputs, rule, rows=words),),
        checks=(
            check_equal(f"row of “{word}” = by hand", outputs[query], context),
            check_equal("W = 1, queries × √d: the lesson “simple” again", plain, attend(x)),
        ),
    )
    with torch_seed(linear_seed):
        linear = SelfAttention(width, D_OUT).double()
    yield Step(
        "With nn.Linear",
        "`SelfAttention` uses nn.Linear. A Linear stores its matrix transposed and initialises it "
        f"around zero, within ±1/√{width}, which trains better. The numbers differ because the "
        f"initial weights do: seed {linear_seed}.",
        tables=(table("contexts of SelfAttention", linear(x), rows=words),),
    )
    moved = to_parameters(linear)
    yield Step(
        "The same weights, the same numbers",
        "If the Linear’s matrices are copied into the parameters, transposed, both modules agree.",
        "W_key = linear.key.weightᵀ",
        (
            table("W_key before", attention.key),
            table("W_key after", moved.key),
            table("contexts after the transfer", moved(x), rows=words),
        ),
        checks=(check_equal("ParameterAttention = SelfAttention", moved(x), linear(x)),),
    )
