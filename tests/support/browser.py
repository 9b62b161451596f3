"""Pages in headless Chromium, which gets no network."""

import shutil
import subprocess
from pathlib import Path

from patience import PATIENCE_S

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def dumped(page: str, place: Path, *options: str, within_ms: int = 1000, dark: bool = False) -> tuple[str, str]:
    """A page as it is after its scripts, and what the browser writes to standard error.

    `within_ms` is the time that the page's own clock may go on.
    """
    (place / "page.html").write_text(page, encoding="utf-8")
    assert BROWSER is not None, "expected Chromium: make nightly-tools installs it"
    shown = subprocess.run(
        [
            BROWSER,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--user-data-dir={place / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            *options,
            "--enable-logging=stderr",
            f"--virtual-time-budget={within_ms}",
            "--dump-dom",
            (place / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert "</html>" in shown.stdout
    return shown.stdout, shown.stderr
