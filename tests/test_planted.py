"""The faults that `make planted` plants: the code and the tests that they name exist."""

from __future__ import annotations

from planted import ROOT, read_faults


def test_each_fault_replaces_a_text_that_stands_once() -> None:
    for fault in read_faults():
        text = (ROOT / fault["file"]).read_text(encoding="utf-8")
        assert text.count(fault["old"]) == 1, fault
        assert fault["old"] != fault["new"], fault
        assert all((ROOT / test.partition("::")[0]).exists() for test in fault["tests"]), fault
