"""Runs the page's JavaScript in deno, for tests that compare it with Python.

A test module has a JavaScript module beside it, which imports the page's modules and exports the
functions that the tests call; javascript.js answers the calls. One process serves a test module:

    @pytest.fixture(scope="module")
    def script() -> Iterator[JavaScript]:
        with JavaScript(Path(__file__).with_suffix(".js")) as running:
            yield running

    def test_…(script: JavaScript) -> None:
        assert script("total", np.array([1, 2], np.float32)) == 3

Arrays of these types become typed arrays, and back; all else is JSON.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

DENO = Path(sys.executable).with_name("deno")
#: numpy's names of types -> the names of JavaScript's typed arrays.
TYPED = {
    **{"float32": "Float32Array", "float64": "Float64Array", "uint8": "Uint8Array"},
    **{"int32": "Int32Array", "uint32": "Uint32Array", "uint16": "Uint16Array"},
}


class JavaScriptError(Exception):
    """A function of the JavaScript module threw an Error; its message."""


class JavaScript:
    """A deno process that has imported one module; calling it calls the module's functions."""

    def __init__(self, module: Path) -> None:
        server = Path(__file__).with_suffix(".js")
        command = [DENO, "run", "--quiet", "--no-prompt", "--no-remote", "--allow-read"]
        self._process = subprocess.Popen(
            [*command, server, module.resolve().as_uri()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=os.environ | {"DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"},
        )

    def __enter__(self) -> JavaScript:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its input, which ends it
        assert self._process.returncode == 0

    def __call__(self, function: str, *arguments: Any) -> Any:
        """What an exported function returns, or resolves to. Raises JavaScriptError if it throws;
        an array arrives as a vector, without its shape."""
        assert self._process.stdin
        assert self._process.stdout
        request = json.dumps({"function": function, "arguments": arguments}, default=_typed)
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "deno ended; its error is above"
        answer = json.loads(line, object_hook=_array)
        if "error" in answer:
            raise JavaScriptError(answer["error"])
        return answer.get("result")


def _typed(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    data = base64.b64encode(np.ascontiguousarray(value).data).decode()
    return {"typed": TYPED[value.dtype.name], "base64": data}


def _array(record: dict[str, Any]) -> Any:
    if record.keys() != {"typed", "base64"}:
        return record
    name = next(name for name, typed in TYPED.items() if typed == record["typed"])
    return np.frombuffer(base64.b64decode(record["base64"]), name)
