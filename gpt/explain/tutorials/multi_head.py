"""The lesson "multi-head": heads side by side, heads at once, and the model's own attention."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch
from torch import Tensor

from gpt.config import ModelConfig
from gpt.explain.convert import PARTS, to_model, to_split
from gpt.explain.ladder import SideBySide, SplitAttention
from gpt.explain.lesson import Material, Step
from gpt.explain.rng import seeded
from gpt.explain.tables import inputs_of, same, table

HEADS, HEAD_SIZE, D_OUT, SEED = 2, 2, 2, 123  # the tutorials'

#: Two heads, three words, four columns: numbers of the tutorials, to see a product of stacks.
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
    """From two heads in a loop to the attention that gptx trains."""
    x, words = inputs_of(material), material.words
    T, width = x.shape
    seed = SEED if material.seed is None else material.seed
    with seeded(seed):
        side_by_side = SideBySide(width, HEAD_SIZE, T, HEADS).double()
    batch = torch.stack((x, x))  # (B, T, C)
    joined = side_by_side(batch)  # (B, T, H·D)
    left, right = joined.chunk(HEADS, dim=-1)
    names = tuple(f"head {head}" for head in range(HEADS) for _ in range(HEAD_SIZE))
    yield Step(
        "Several heads, side by side",
        "One head makes one mean of the words. Another head, with matrices of its own, may look "
        "for something else: one for the word before, one for the last name. `SideBySide` runs "
        f"{HEADS} heads one after the other and puts their columns side by side. Seed {seed}, the "
        "text twice as a batch.",
        "contexts = concat(head 0(X), head 1(X))",
        (table("contexts side by side", joined, rows=words, columns=names),),
        "The heads share nothing and could run at the same time.",
        (
            same("left half = head 0 alone", left, side_by_side.heads[0](batch), 0),
            same("right half = head 1 alone", right, side_by_side.heads[1](batch), 0),
        ),
    )
    stack = torch.tensor(STACK, dtype=torch.float64)[None]  # (B, H, T, D)
    turned = stack.transpose(2, 3)
    yield Step(
        "A product of stacks",
        "To run all heads at once, their numbers are stacked: (batch, head, word, column). A "
        "product of two stacks multiplies the last two axes and leaves the others alone: a matrix "
        f"product for each head. Shape {tuple(stack.shape)}; transpose(2, 3) turns each matrix "
        "over.",
        "scores = a · transpose(a, 2, 3)",
        (
            table("a", stack[0]),
            table("a turned over", turned[0]),
            table("a · a turned over", (stack @ turned)[0]),
        ),
        checks=(
            same("each head’s own product", (stack @ turned)[0, 1], stack[0, 1] @ stack[0, 1].T),
        ),
    )
    split = to_split(side_by_side)
    yield Step(
        "The same weights, split instead of looped",
        "`SplitAttention` has one large matrix for all queries, one for keys, one for values. The "
        "heads’ matrices lie in it one below the other; view cuts the result into heads. Filled "
        "with the weights from above, it gives the same numbers.",
        "W_query = W_query of head 0 above W_query of head 1",
        (
            *(
                table(f"W_{part} of SplitAttention", getattr(split, part).weight, rows=names)
                for part in PARTS
            ),
            table(
                "contexts before the projection", split.join(batch)[0], rows=words, columns=names
            ),
        ),
        "Head 0 and head 1 are rows 0–1 and 2–3. Your own model keeps them like this: see "
        "gptx explain mine.",
        (same("SplitAttention = SideBySide", split.join(batch), joined),),
    )
    with seeded(seed):
        projected = SplitAttention(width, D_OUT, T, HEADS).double()
    outputs = projected(batch)
    by_one = tuple(f"head {head}" for head in range(HEADS))  # a column each
    yield Step(
        "A projection mixes the heads",
        "So far, columns of different heads have not been combined. A last Linear mixes "
        f"them. Here d_out = {D_OUT} for both heads together, so each has {D_OUT // HEADS} column: "
        "n_embd // n_head is the head size, and forgetting to divide is a common slip. A new "
        f"SplitAttention, seed {seed} again, with X as above; row 0 of each matrix is head 0’s, "
        "row 1 is head 1’s.",
        "queries = X · W_queryᵀ    "
        "contexts = softmax(masked(queries · keysᵀ / √head_size)) · values    "
        "output = concat(contexts) · W_projᵀ + b",
        (
            *(table(f"{part}.weight", getattr(projected, part).weight) for part in PARTS),
            table("concat", projected.join(batch)[0], rows=words, columns=by_one),
            table("proj.weight", projected.proj.weight),
            table("proj.bias", projected.proj.bias),
            table("output of SplitAttention", outputs, rows=words),
        ),
    )
    yield _in_the_model(joined.detach(), words, seed)
    small = ModelConfig(vocab_size=1, n_layer=1, n_head=12, n_embd=768, bias=True)
    attention = {n: s for n, s in small.shapes().items() if ".attention." in n}
    yield Step(
        "At GPT-2’s size",
        f"The smallest GPT-2 has 12 heads of 768 // 12 = {small.head_size} columns and looks at "
        "1,024 tokens. The attention of one of its layers, without biases for queries, keys and "
        f"values, has {sum(map(prod, attention.values())):,} numbers: the same module as the one "
        "above, with larger matrices.",
    )


def _in_the_model(stream: Tensor, words: tuple[str, ...], seed: int) -> Step:
    """(B, T, C) stream -> the last step: the modules of `gpt/model/attention.py` give the same."""
    width, T = stream.shape[-1], stream.shape[1]
    size = width // HEADS
    with seeded(seed):
        split = SplitAttention(width, width, T, HEADS).double()
    heads, fused = to_model(split, "heads"), to_model(split, "fused")
    x = stream.clone().requires_grad_()
    outputs = [split(x), *(module(x, lambda q, k: (q, k)) for module in (heads, fused))]
    gradients = [torch.autograd.grad(each.square().sum(), x)[0] for each in outputs]
    stored = fused.state_dict()
    parts = tuple(f"{part} {row}" for part in "qkv" for row in range(width))
    return Step(
        "The model’s own attention",
        f"In a GPT as many columns go out as came in. So here the {width} columns of “contexts "
        f"side by side” go in, and each of {HEADS} heads has {size} columns. The weights are new, "
        f"seed {seed}, and lie as in a checkpoint: in qkv.weight {width} rows for queries, {width} "
        f"for keys, {width} for values, of each the first {size} for head 0. gptx has this "
        "attention twice: as a module a head, to read, and as one fused kernel, to train fast. All "
        "three forms hold the same weights and give the same numbers, and the same gradients, so "
        "training is the same with each form.",
        "SplitAttention = MultiHeadAttention = FusedAttention",
        (
            table("qkv.weight of FusedAttention", stored["qkv.weight"], rows=parts),
            table("proj.weight of FusedAttention", stored["proj.weight"]),
            table("proj.bias of FusedAttention", stored["proj.bias"]),
            table("output of FusedAttention", outputs[2][0], rows=words),
        ),
        checks=(
            same("module a head = split", outputs[1], outputs[0]),
            same("its gradients too", gradients[1], gradients[0]),
            same("fused = split", outputs[2], outputs[0]),
            same("its gradients too", gradients[2], gradients[0]),
        ),
    )
