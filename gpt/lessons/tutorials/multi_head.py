"""The lesson "multi-head": heads side by side, heads at once, and the model's own attention."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

import torch
from torch import Tensor

from gpt.config import ModelConfig
from gpt.lessons.ladder import PARTS, SideBySide, SplitAttention, to_model, to_split
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, input_tensor, table, torch_seed

HEADS, HEAD_SIZE, D_OUT, SEED = 2, 2, 2, 123  # the tutorials'

#: Two heads, three words, four columns: numbers of the tutorials that show a product of stacks.
STACK = (
    (
        (0.2745, 0.6584, 0.2775, 0.8573),
        (0.8993, 0.0390, 0.9268, 0.7388),
        (0.7179, 0.7058, 0.9156, 0.4340),
    ),
    (
        (0.0722, 0.3565, 0.1479, 0.5331),
        (0.4066, 0.2318, 0.4545, 0.9737),
        (0.4606, 0.5159, 0.4220, 0.5786),
    ),
)


def steps(material: Material) -> Iterator[Step]:
    """From two heads in a loop to the attention with which gptx trains."""
    x, words = input_tensor(material), material.words
    T, width = x.shape
    seed = material.seed_or(SEED)
    with torch_seed(seed):
        side_by_side = SideBySide(width, HEAD_SIZE, T, HEADS).double()
    batch = torch.stack((x, x))  # (B, T, C)
    joined = side_by_side(batch)  # (B, T, H·D)
    left, right = joined.chunk(HEADS, dim=-1)
    names = tuple(f"head {head}" for head in range(HEADS) for _ in range(HEAD_SIZE))
    yield Step(
        "Several heads, side by side",
        "One head computes one mean of the words. Another head has other matrices and may attend "
        "to other words: one head to the previous word, another to the last name. `SideBySide` "
        f"runs {HEADS} heads one after the other and puts their columns side by side. The seed is "
        f"{seed}, and the batch has the text twice.",
        "contexts = concat(head 0(X), head 1(X))",
        (
            table("inputs", x, rows=words),
            table("contexts side by side", joined, rows=words, columns=names),
        ),
        "The heads share nothing and could run at the same time.",
        (
            check_equal("left half = head 0 alone", left, side_by_side.heads[0](batch), 0),
            check_equal("right half = head 1 alone", right, side_by_side.heads[1](batch), 0),
        ),
    )
    stack = torch.tensor(STACK, dtype=torch.float64)[None]  # (B, H, T, D)
    turned = stack.transpose(2, 3)
    yield Step(
        "A product of stacks",
        "To compute all heads at once, their matrices are stacked: (batch, head, word, column). A "
        "product of two stacks is a matrix product over the last two axes, one for each head. The "
        f"stack’s shape is {tuple(stack.shape)}; transpose(2, 3) transposes each matrix.",
        "scores = a · transpose(a, 2, 3)",
        (
            table("a", stack[0]),
            table("a turned over", turned[0], "a.T"),
            table("a · a turned over", (stack @ turned)[0], "a @ a.T"),
        ),
        checks=(
            check_equal(
                "each head’s own product", (stack @ turned)[0, 1], stack[0, 1] @ stack[0, 1].T
            ),
        ),
    )
    split, matrix = to_split(side_by_side), partial(table, rows=names)
    contexts, rule = split.join(batch)[0], _joined("W_query", "W_key", "W_value", HEAD_SIZE)
    yield Step(
        "The same weights, split instead of looped",
        "`SplitAttention` has one large matrix for all queries, one for keys, one for values. Each "
        "contains the heads’ matrices one below the other; view divides the result into heads. "
        "With the weights from above, it gives the same numbers.",
        "W_query = W_query of head 0 above W_query of head 1",
        (
            *(matrix(f"W_{n} of SplitAttention", getattr(split, n).weight) for n in PARTS),
            table("contexts before the projection", contexts, rule, rows=words, columns=names),
        ),
        "Head 0 and head 1 are rows 0–1 and 2–3. Your own model stores them in the same way: see "
        "gptx explain mine.",
        (check_equal("SplitAttention = SideBySide", split.join(batch), joined),),
    )
    with torch_seed(seed):
        projected = SplitAttention(width, D_OUT, T, HEADS).double()
    outputs = projected(batch)
    by_one = tuple(f"head {head}" for head in range(HEADS))  # one column each
    rule = _joined("query_weight", "key_weight", "value_weight", D_OUT // HEADS)
    row = "concat @ proj_weight.T + proj_bias"  # a row of the batch
    yield Step(
        "A projection mixes the heads",
        "So far, columns of different heads have not been combined. A final Linear mixes them. "
        f"Here d_out = {D_OUT} for both heads together, so each has {D_OUT // HEADS} column: "
        "n_embd // n_head is the head size, and forgetting to divide is a common slip. This is a "
        f"new SplitAttention, seed {seed} again, with X as above; row 0 of each matrix belongs to "
        "head 0, row 1 to head 1.",
        "queries = X · W_queryᵀ    "
        "contexts = softmax(masked(queries · keysᵀ / √head_size)) · values    "
        "output = concat(contexts) · W_projᵀ + b",
        (
            *(table(f"{part}.weight", getattr(projected, part).weight) for part in PARTS),
            table("concat", projected.join(batch)[0], rule, rows=words, columns=by_one),
            table("proj.weight", projected.proj.weight),
            table("proj.bias", projected.proj.bias),
            table("output of SplitAttention", outputs, f"stack({row}, {row})", rows=words),
        ),
    )
    yield _in_the_model(joined.detach(), words, seed)
    small = ModelConfig(vocab_size=1, n_layer=1, n_head=12, n_embd=768, bias=True)
    attention = {n: s for n, s in small.shapes().items() if ".attention." in n}
    yield Step(
        "At GPT-2’s size",
        f"The smallest GPT-2 has 12 heads of 768 // 12 = {small.head_size} columns and a context "
        "of 1,024 tokens. The attention of one of its layers, without biases for queries, keys and "
        f"values, has {sum(map(prod, attention.values())):,} numbers: the same module as the one "
        "above, with larger matrices.",
    )


def _joined(query: str, key: str, value: str, size: int) -> str:
    """The rule for all heads' contexts; query, key, value: keys of the tables of weights."""
    rules = []
    for head in range(HEADS):
        rows = f"[{head * size}:{(head + 1) * size}].T"
        scores = f"inputs @ {query}{rows} @ (inputs @ {key}{rows}).T / sqrt({size})"
        rules.append(f"softmax(causal({scores})) @ (inputs @ {value}{rows})")
    return f"concat({', '.join(rules)})"


def _in_the_model(stream: Tensor, words: tuple[str, ...], seed: int) -> Step:
    """(B, T, C) stream -> the step in which the modules of `gpt/model/attention.py` read it."""
    width, T = stream.shape[-1], stream.shape[1]
    size = width // HEADS
    with torch_seed(seed):
        split = SplitAttention(width, width, T, HEADS).double()
    heads, fused = to_model(split, "heads"), to_model(split, "fused")
    x = stream.clone().requires_grad_()
    outputs = [split(x), *(module(x, lambda q, k: (q, k)) for module in (heads, fused))]
    gradients = [torch.autograd.grad(each.square().sum(), x)[0] for each in outputs]
    stored = fused.state_dict()
    parts = tuple(f"{part} {row}" for part in "qkv" for row in range(width))
    return Step(
        "The model’s own attention",
        "In a GPT, input and output of attention are equally wide. So the input here is the "
        f"{width} columns of “contexts side by side”, and each of {HEADS} heads has {size} "
        f"columns. The weights are new, seed {seed}, in the layout of a checkpoint: qkv.weight has "
        f"{width} rows for queries, {width} for keys, {width} for values; the first {size} of each "
        "belong to head 0. gptx has this attention in two forms: one readable module per head, and "
        "one fast fused kernel. With the same weights, all three forms give the same numbers and "
        "gradients, so training is the same with each form.",
        "SplitAttention = MultiHeadAttention = FusedAttention",
        (
            table("qkv.weight of FusedAttention", stored["qkv.weight"], rows=parts),
            table("proj.weight of FusedAttention", stored["proj.weight"]),
            table("proj.bias of FusedAttention", stored["proj.bias"]),
            table("output of FusedAttention", outputs[2][0], rows=words),
        ),
        checks=(
            check_equal("module a head = split", outputs[1], outputs[0]),
            check_equal("its gradients too", gradients[1], gradients[0]),
            check_equal("fused = split", outputs[2], outputs[0]),
            check_equal("its gradients too", gradients[2], gradients[0]),
        ),
    )
