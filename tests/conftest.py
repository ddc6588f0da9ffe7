"""Settings of every test process, made before anything imports JAX; light tests never import it."""

import os
from pathlib import Path

# Eight simulated devices: enough for replica × data × fsdp of two each.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
# Compiled programs are kept between runs of the tests; the folder is ignored by git and may be deleted.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "cache" / "xla"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_LEGACY_PRNG_KEY"] = "error"
