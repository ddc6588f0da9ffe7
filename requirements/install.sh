#!/bin/sh
# Makes the virtual environment and installs one file of pins: install.sh VENV PINS
# Uses uv when it can be had (seconds), else pip (minutes). PYTHON=... chooses the interpreter (3.11 to 3.13).
# What was cut short is known by a mark in the environment: .making its base, .installing its packages.
set -eu
venv=$1 pins=$2

good() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

if [ ! -x "$venv/bin/python" ] || ! good "$venv/bin/python" || [ -e "$venv/.making" ]; then
    for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.13}; do
        if good "$candidate"; then found=$candidate; break; fi
    done
    if [ -z "${found:-}" ]; then
        echo "no Python 3.11 to 3.13 found (tried ${PYTHON:-python3, python3.12, python3.11, python3.13}): install one, or name it with PYTHON=..." >&2
        exit 2
    fi
    rm -rf "$venv"
    mkdir -p "$venv"
    touch "$venv/.making"
    if command -v uv >/dev/null 2>&1; then
        uv venv -q --allow-existing -p "$("$found" -c 'import sys; print(sys.executable)')" "$venv"
    else
        "$found" -m venv "$venv"
    fi
    rm "$venv/.making"
fi

uv=$(command -v uv || true)
# An environment that uv made has no pip, and uv may be gone.
if [ -z "$uv" ] && ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    "$venv/bin/python" -m ensurepip -U >/dev/null
fi
if [ -z "$uv" ] && "$venv/bin/python" -m pip install -q --disable-pip-version-check -r requirements/uv.txt >/dev/null 2>&1; then
    uv=$venv/bin/uv
fi
again=''
[ ! -e "$venv/.installing" ] || again=yes
touch "$venv/.installing"
echo "installing $pins into $venv (about a minute; with pip several)" >&2
if [ -n "$uv" ]; then
    "$uv" pip install -q -p "$venv/bin/python" --compile-bytecode ${again:+--reinstall} -r "$pins"
else
    "$venv/bin/python" -m pip install -q --disable-pip-version-check ${again:+--force-reinstall} -r "$pins"
fi
rm "$venv/.installing"
"$venv/bin/python" -m compileall -q repro experiments analysis
