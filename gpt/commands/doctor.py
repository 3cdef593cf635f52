"""`gptx doctor`."""

from __future__ import annotations

from pathlib import Path

from gpt.commands import shared
from gpt.config.train import Data, OnDevice
from gpt.errors import InstallationError
from gpt.words import counted


class Doctor(shared.Drawing):
    """Check the installation: versions, machine, folders, and every form of the model.

    Paste the output into a report: it has no user name and nothing of your texts.
    Exit code 10: a package is missing, or the self-test has failed.
    """

    data: Data = Path("data")
    device: OnDevice = "auto"

    def execute(self) -> None:
        from gpt.interface.doctor import examine

        found = examine(self.checkpoints, self.data, self.device)
        if self.as_json:
            self.write_record(found.records())
        else:
            self.write_blocks(found.blocks())
        if found.problems:
            count = counted(len(found.problems), "problem")
            raise InstallationError(f"{count} found; the output says what to do")
