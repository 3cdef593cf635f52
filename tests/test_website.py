"""The site of `make site`: no warning, no network, and the demo plays in a page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

ROOT = Path(__file__).parents[1]


def test_site_builds_and_its_demo_plays_without_a_network(
    tmp_path: Path, chromium: BrowserContext
) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)
    page = chromium.new_page()
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))
    page.goto((tmp_path / "play.html").as_uri())
    frame = page.frame_locator("iframe[src]")
    frame.locator("main:not([aria-busy=true]) textarea").first.wait_for()
    page.close()
    assert {address.split(":")[0] for address in addresses} <= {"file", "blob", "data"}
