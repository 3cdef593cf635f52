"""Model files with other tables of counting and a correct digest: refused, or all that they predict
is finite and sums to 1.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program import Gptx

import gpt
from gpt.config import ModelConfig
from gpt.counting.expert import Expert
from gpt.counting.mixture import PRIOR_MEAN, Gate, Mixture
from gpt.counting.tables import count
from gpt.errors import CheckpointError
from gpt.interface.trained import TrainedGPT
from gpt.model import GPT, initialise
from gpt.storage.model_file import BLANK, fill_digest
from gpt.training.checkpoint import model_bytes
from gpt.vocabulary import Vocabulary

Arrays = dict[str, Any]

TEXT = "the cat sat on the mat. the rat sat on the cat.\n" * 20
VOCABULARY = Vocabulary.from_text(TEXT)
SIZE, ORDERS = len(VOCABULARY), 4
#: Each reads the tables of counting.
COMMANDS = [
    ("next", "the"),
    ("eval", "held-out.txt", "--unknown", "skip"),
    ("sample", "--length", "3"),
    ("sample", "--length", "3", "-n", "2"),
]


@pytest.fixture(scope="module")
def honest() -> bytes:
    """A model file with random weights, and with the tables of TEXT."""
    shape: dict[str, Any] = {"block_size": 16, "n_layer": 1, "n_head": 1, "n_embd": 4}
    model = GPT(ModelConfig(vocab_size=SIZE, **shape, counting=ORDERS))
    initialise(model, seed=1)
    expert = Expert(count(VOCABULARY.encode(TEXT), SIZE, ORDERS), SIZE)
    mixture = Mixture(expert, Gate(PRIOR_MEAN))
    return model_bytes(model, VOCABULARY, TEXT[:100], 1, mixture=mixture)


def forged(data: bytes, arrays: Arrays) -> bytes:
    """The model file with other arrays of counting, and a correct digest."""
    end = 8 + int.from_bytes(data[:8], "little")
    about = json.loads(json.loads(data[8:end])["__metadata__"]["gptx"]) | {"digest": BLANK}
    tensors = safetensors.numpy.load(data)
    tensors |= {f"counting.{name}": array for name, array in arrays.items()}
    return fill_digest(safetensors.numpy.save(tensors, {"gptx": json.dumps(about)}))


def chain(orders: int) -> Arrays:
    """One n-gram of each order."""
    one = np.ones(orders, "u1")
    return {"symbols": np.zeros(orders, "u1"), "counts": one, "children": one}


def trie_of(chance: np.random.Generator, orders: int, full: bool, skewed: bool) -> Arrays:
    """Any trie whose children and sums of counts fit together, though no text has it."""
    symbols, children, sizes = list[Any](), list[int](), list[int]()
    nodes = 1
    for _ in range(orders):
        rows = [
            np.flatnonzero(chance.random(SIZE) < (1 if full else chance.random()))
            for _ in range(nodes)
        ]
        rows[0] = rows[0] if len(rows[0]) else np.arange(SIZE)
        children += [len(row) for row in rows]
        symbols += rows
        nodes = sum(map(len, rows))
        sizes.append(nodes)
        if nodes > 2000:
            break
    counts = []
    for size, total in zip(sizes, [*sizes[1:], int(chance.integers(2**21))], strict=True):
        shares = np.eye(size)[0] if skewed else chance.dirichlet(np.ones(size))
        counts.append(chance.multinomial(total, shares))
    found = {"symbols": np.concatenate(symbols), "counts": np.concatenate(counts)}
    return {
        name: each.astype("u4") for name, each in (found | {"children": np.array(children)}).items()
    }


numbers = st.sampled_from([0, 1, 2, 3, 7, SIZE - 1, SIZE, 255, 2**16, 2**31, 2**32 - 1])
weights = st.floats(allow_subnormal=True) | st.sampled_from([0.0, 4.0, -1e6, 1e6, 1e308, -1e308])


@st.composite
def tables(draw: st.DrawFn) -> Arrays:
    """Tables of another trie, of the honest one with a few changes, of a chain, or any numbers."""
    kind = draw(st.sampled_from(["trie", "trie", "trie", "changed", "chain", "any"]))
    if kind == "trie":
        chance = np.random.default_rng(draw(st.integers(0, 2**32)))
        orders = draw(st.integers(1, ORDERS + 1))
        found = trie_of(chance, orders, draw(st.booleans()), draw(st.booleans()))
    elif kind == "chain":
        found = chain(draw(st.sampled_from([1, 2, ORDERS, ORDERS + 1, 3000])))
    elif kind == "any":
        lists = st.lists(numbers, max_size=6)
        found = {name: np.array(draw(lists), "u4") for name in ("symbols", "counts", "children")}
    else:
        found = dict(count(VOCABULARY.encode(TEXT), SIZE, ORDERS).packed())
    for _ in range(draw(st.integers(0, 2)) if kind in ("changed", "chain") else 0):
        name = draw(st.sampled_from(list(found)))
        array = found[name].astype("u4")
        at = draw(st.integers(0, 2**20)) % max(1, len(array))
        array[at : at + 1] = draw(numbers)
        found[name] = draw(st.sampled_from([array, array, array[:-1], np.append(array, 0)]))
    if draw(st.booleans()):
        shape = draw(
            st.sampled_from([(2, 8), (2, 8), (2, 8), (2, 5), (2, 6), (1, 8), (16,), (2, 0)])
        )
        each = draw(st.sampled_from([st.floats(-9, 9), st.floats(-1e6, 1e6), weights]))
        flat = [draw(each) for _ in range(int(np.prod(shape)))]
        kind = draw(st.sampled_from(["f8", "f8", "f4", "i4"]))
        with np.errstate(all="ignore"):
            found["gate"] = np.array(flat, "f8").astype(kind).reshape(shape)
    return found


def predict(model: TrainedGPT) -> None:
    """Asserts that whatever reads the tables gives finite numbers that sum to 1."""
    only: Literal["counting"] | None
    for only in (None, "counting"):
        expected = model.next("the c", only=only).expected
        assert expected.sum() == pytest.approx(1, abs=1e-9)
        assert len(model.sample("the", length=3, only=only)) == 6
        assert len(model.sample("the", length=3, n=2, only=only)) == 2
    score, experts = model.eval(TEXT[:40]).score, model.next("the cat").experts
    numbers = [
        score.nats,
        score.gpt,
        score.counting,
        *model.eval(TEXT[:40], chars=True).surprisals.nats,
    ]
    assert np.isfinite(np.array(numbers, "f8")).all()
    assert experts is not None
    assert model.mixture is not None
    for each in (experts.gpt, experts.counting, experts.both):
        assert each.sum() == pytest.approx(1, abs=1e-9)
    assert np.log(experts.counting).min() >= model.mixture.expert.least
    assert np.isfinite(experts.weights).all()


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tables())
def test_forged_tables_are_refused_or_predict(
    honest: bytes, tmp_path: Path, arrays: Arrays
) -> None:
    path = tmp_path / "forged.safetensors"
    path.write_bytes(forged(honest, arrays))
    with suppress(CheckpointError):
        predict(gpt.load(path))


@pytest.mark.parametrize(
    ("orders", "weight"),
    [(0, 0.1), (0, 1e308), (0, -1e7), (ORDERS + 1, 0.1), (3000, 0.1), (300_000, 0.1)],
)
def test_forged_tables_and_gates_are_refused_in_one_line(
    honest: bytes, tmp_path: Path, gptx: Gptx, orders: int, weight: float
) -> None:
    path = tmp_path / "forged.safetensors"
    arrays = {"gate": np.full(PRIOR_MEAN.shape, weight)} | (chain(orders) if orders else {})
    path.write_bytes(forged(honest, arrays))
    healthy = not orders and weight == 0.1
    for line in COMMANDS:
        answer = gptx(*line, "--run", str(path))
        expected = (0, 0) if healthy else (4, 1)
        assert (answer.code, answer.err.count("error: ")) == expected, (line, answer.err)
