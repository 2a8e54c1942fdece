"""The site's settings with a link to the repository that this copy was cloned from, if it has one.

    .venv/bin/python -m docs.repository > .site.toml

The link is an entry of the navigation, not the theme's `repo_url`, whose script asks the forge for
stars when a page is read.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "zensical.toml"

_URL = re.compile(
    r"(?:https?|ssh|git)://(?:[^@/]*@)?(?P<host>[^:/]+)(?::\d+)?/(?P<path>.+?)/?(?:\.git)?/?"
)
_SCP = re.compile(r"(?:[^@/:]+@)?(?P<host>[^:/@]+\.[^:/@]+):(?!/)(?P<path>.+?)(?:\.git)?/?")
_END_OF_NAV = "\n]\n\n[project.theme]"


def web_address(remote: str) -> str | None:
    """The page of a repository, of an address that Git takes: `git@host:owner/name.git`, ssh:// or
    https://. None for a folder. A password in it is left out."""
    match = _URL.fullmatch(remote) or _SCP.fullmatch(remote)
    return match and f"https://{match['host']}/{match['path']}"


def settings_with(address: str | None) -> str:
    """The text of the settings, with that address in the navigation."""
    text = SETTINGS.read_text()
    entry = f'\n    {{ "Repository" = "{address}" }},{_END_OF_NAV}'
    return text if address is None else text.replace(_END_OF_NAV, entry, 1)


def main() -> None:
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stdout.write(settings_with(web_address(asked.stdout.strip())))


if __name__ == "__main__":
    main()
