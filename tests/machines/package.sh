#!/usr/bin/env bash
# Builds the source distribution and the wheel, and installs each into a clean environment with its
# dependencies from the index. `rocelab` then runs from there, beside nothing of the checkout.
set -euxo pipefail
apt-get -q update
apt-get -q -y install --no-install-recommends python3-venv
made=$(mktemp -d)
python3 -m venv "$made/build"
"$made/build/bin/pip" install -q hatchling
"$made/build/bin/python" -m hatchling build -d "$made/dist"
for each in "$made"/dist/*; do
    python3 -m venv --clear "$made/clean"
    "$made/clean/bin/pip" install -q "$each"
    (cd / && "$made/clean/bin/rocelab" plan tiny && "$made/clean/bin/rocelab" drill show link-flap)
    test -e "$made/clean/share/man/man1/rocelab.1"
done
