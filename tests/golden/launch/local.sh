#!/bin/sh
exec python -m repro run table5 --scale mini --seeds 1 --root 'my runs' --cache cache --workers 2
