#!/bin/bash
# tests/containerlab/run.sh [PYTEST ARGUMENT]...: the tests with containerlab itself, as root.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec tests/containerlab/alone.sh .venv/bin/python -m pytest -p no:cacheprovider \
    -o junit_family=xunit1 --junitxml=results/containerlab.xml "$@" \
    tests/containerlab tests/integration/test_runtimes.py
