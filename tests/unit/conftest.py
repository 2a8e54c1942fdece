"""How many examples property tests look at where they do not say: half of Hypothesis' hundred.

The whole suite runs for every change; `--hypothesis-profile=default` looks at all of them.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("suite", max_examples=50)
settings.load_profile("suite")
