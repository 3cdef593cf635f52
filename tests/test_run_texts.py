"""What a question without a text is about, in Python as on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program import Gptx

import gpt

SOURCE = "the validation split's first 306 characters"
NOTE = f'no text given; this one is from {SOURCE}: "'


def test_without_a_text_python_and_the_command_line_agree(
    gptx: Gptx, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = gpt.load(home / "checkpoints")
    text = run.stored.example_text()

    def told(answer: Any) -> str:
        assert answer.code == 0, answer.err
        assert answer.err == f'no TEXT given; this one is from {SOURCE}: "{text}"\n'
        assert caplog.messages[0] == f'{NOTE}{text}"'
        caplog.clear()
        return str(answer.out)

    seen = run.attn()
    assert gptx("attn", "-o", "seen.npz").code == 0
    with np.load("seen.npz") as stored:
        for name in ("ids", "weights", "resid_mid"):
            np.testing.assert_array_equal(seen.to_numpy()[name], stored[name])
    found = json.loads(told(gptx("attn", "--head", "all", "--json")))
    np.testing.assert_allclose(found["values"][0], seen["weights", 0, 0], rtol=1e-6)
    expected = run.next(temperature=0.5)
    rows = json.loads(told(gptx("next", "--json", "--temperature", "0.5")))["rows"]
    np.testing.assert_allclose([row["expected"] for row in rows], np.sort(expected.expected)[::-1])
    acts = run.activations()
    np.testing.assert_array_equal(acts["weights"][0], seen["weights"])
    np.testing.assert_array_equal(run.logits(), acts["logits"])
    assert {*caplog.messages} == {f'{NOTE}{text}"'}
