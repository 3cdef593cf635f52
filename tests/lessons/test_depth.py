"""The lesson "depth": its numbers, computed again without the lesson's code."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from two_layers import numbers_of, softmax, table

from gpt.lessons.catalogue import make_lesson, make_material
from gpt.lessons.lesson import Lesson
from gpt.lessons.tutorials import depth

WORDS = [("one", "step", "and", "one"), ("a",), ("új", "🙂", "új")]


def played(*words: str, seed: int | None = None) -> Lesson:
    return make_lesson("depth", make_material("depth", words or None, seed=seed))


@pytest.mark.parametrize("words", WORDS)
def test_layers_add_what_their_heads_compute(words: tuple[str, ...]) -> None:
    told, expected = played(*words), numbers_of(words)
    assert told.failed == []
    read = ("(start)", *words)
    names = list(dict.fromkeys(read))
    zero, own = [0.0] * len(names), [float(each == words[-1]) for each in names]
    place = [float(n == len(words)) for n in range(len(read))]
    before, copied = expected["before"][-1], expected["next"][-1]
    for name, rows in (
        ("word", [own, zero, zero, own]),
        ("before", [zero, before, zero, before]),
        ("next", [zero, zero, copied, copied]),
        ("place", [place, [0] * len(read), [0] * len(read), place]),
    ):
        np.testing.assert_allclose(table(told, f"columns “{name}”").values, rows, atol=1e-12)
    share = [5 * each for each in copied]
    np.testing.assert_allclose(table(told, "shares").values, [zero, zero, share, share], atol=1e-12)
    even = softmax(zero)
    np.testing.assert_allclose(table(told, "lens").values, [even, even, softmax(share)], atol=1e-12)
    assert "is that of layer 1" in told.steps[1].notice


def test_two_texts_have_the_same_letters_at_the_same_places_as_the_other_two() -> None:
    pairs = [Counter(enumerate(text)) for text in depth.TEXTS]
    assert pairs[0] + pairs[1] == pairs[2] + pairs[3]
    for text, answer in zip(depth.TEXTS, depth.ANSWERS, strict=True):
        assert text[-1] == "a"
        assert text[text.index("a") + 1] == answer


def random_models(seed: int) -> tuple[Any, Any]:
    """(4, N) differences of two logits, and scores of b, by one softmax for each text and model."""
    state, differences, scores_of_b = torch.random.get_rng_state(), [], []
    for text in depth.TEXTS:
        torch.manual_seed(seed)
        words, places = (torch.randn(2_000, n, 8).numpy() for n in (4, 5))
        query, key, value = torch.randn(3, 2_000, 8, 8).numpy().astype(float) / 8**0.5
        output = torch.randn(2_000, 8, 1).numpy().astype(float)[..., 0]
        x = np.stack([words[:, "abcd".index(c)] + places[:, t] for t, c in enumerate(text)], 1)
        q = np.einsum("nc,ncd->nd", x[:, -1], query)
        k, v = (np.einsum("ntc,ncd->ntd", x, matrix) for matrix in (key, value))
        scores = np.einsum("ntd,nd->nt", k, q) / 8**0.5
        weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        stream = x[:, -1] + np.einsum("nt,ntd->nd", weights, v)
        differences.append((stream * output).sum(axis=1))
        scores_of_b.append(scores[:, text.index("b")])
    torch.random.set_rng_state(state)
    return np.array(differences), np.array(scores_of_b)


@pytest.mark.parametrize("seed", [None, 7])
def test_no_random_head_is_right_four_times_and_two_layers_are(seed: int | None) -> None:
    told = played(seed=seed)
    differences, scores = random_models(123 if seed is None else seed)
    right = ((differences > 0) == np.array([[True], [True], [False], [False]])).sum(axis=0)
    counts = table(told, "models by right answers").values
    assert counts.tolist() == np.bincount(right, minlength=5).tolist()
    assert counts[4] == 0
    both, shown = (
        table(told, name).values for name in ("scores of b", "one head; p of the two layers")
    )
    nth = int(right.argmax())
    np.testing.assert_allclose(both[:, 0], scores[:, nth], atol=1e-5)
    np.testing.assert_allclose(shown[:, 0], differences[:, nth], atol=1e-5)
    assert both[0, 0] == pytest.approx(both[3, 0])
    assert shown[:2, 1].sum() == pytest.approx(shown[2:, 1].sum())
    for text, score, p in zip(depth.TEXTS, both[:, 1], shown[:, 2:], strict=True):
        expected = numbers_of((*text,))
        names = list(dict.fromkeys(("(start)", *text)))
        assert score == pytest.approx(expected["scores"][-1][1 + text.index("b")])
        np.testing.assert_allclose(p, [expected["p"][-1][names.index(c)] for c in "bd"])
    assert (
        f"One head is right {right.max()} times at most, the two layers 4" in told.steps[-1].notice
    )


def test_training_one_layer_on_the_four_texts_never_answers_all_of_them() -> None:
    """The proof, tried: gradient descent on the weights of single heads."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((50, 4, 8), (50, 5, 8), (50, 8, 8), (50, 8, 8), (50, 8, 8), (50, 8, 1))
    weights = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    signs = torch.tensor([1.0, 1.0, -1.0, -1.0])[:, None]
    ids = torch.tensor([["abcd".index(c) for c in text] for text in depth.TEXTS])
    optimizer, most = torch.optim.Adam(weights, lr=0.03), 0
    for _ in range(150):
        word, place, query, key, value, output = weights
        x = word[:, ids] + place[:, None]  # (50, 4, 5, 8)
        scores = torch.einsum("ntsd,ntd->nts", x @ key[:, None], x[:, :, -1] @ query)
        stream = x[:, :, -1] + torch.einsum("nts,ntsd->ntd", scores.softmax(-1), x @ value[:, None])
        differences = (stream @ output)[..., 0].T  # (4, 50)
        most = max(most, int((differences * signs > 0).sum(dim=0).max()))
        optimizer.zero_grad()
        torch.nn.functional.softplus(-differences * signs).mean().backward()
        optimizer.step()
    assert most == 3


def test_a_slip_fails_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    real = depth._read

    def looks_back(text: str, seed: int) -> Any:
        scores, adds = real(text, seed)
        scores[:, 1] += text[0] == "a"  # as if a key had the letter before
        return scores, adds

    monkeypatch.setattr(depth, "_read", looks_back)
    assert {"one layer: equal", "first two = last two"} <= set(played().failed)
    monkeypatch.setattr(depth, "LOGIT", 4.0)
    assert "last lens = e^logit / Σ" in played().failed
