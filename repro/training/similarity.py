"""Cosine similarity between the replicas' outer gradients (Figures 17 and 18), from their inner products."""

from typing import Any

import numpy as np

from repro.spec.fragments import Fragment


def similarity_rows(
    step: int, taken: int, index: int, fragment: Fragment, gram: dict[str, np.ndarray]
) -> list[dict[str, Any]]:
    """One record for each layer, for the embedding, and for the fragment as a whole.

    `gram` holds `layers` (k, M, M) and `embed` (M, M). `cosine` is the mean over pairs of replicas (None
    for one replica, or where an outer gradient is zero); `norm_m` the norm of replica m's.
    """
    records = []
    base = {"step": step, "taken": taken, "fragment": index}
    for layer, products in zip(fragment.layers, gram.get("layers", ()), strict=False):
        records.append(base | {"part": f"layer {layer}"} | _summary(products))
    if fragment.embed:
        records.append(base | {"part": "embedding"} | _summary(gram["embed"]))
    total = sum(np.asarray(g, np.float64).reshape(-1, *g.shape[-2:]).sum(axis=0) for g in gram.values())
    records.append(base | {"part": "fragment"} | _summary(np.asarray(total)))
    return records


def _summary(products_MxM: np.ndarray) -> dict[str, Any]:
    products = np.asarray(products_MxM, np.float64)
    norms = np.sqrt(np.diag(products))
    replicas = len(norms)
    cosine = None
    if replicas > 1 and norms.min() > 0:
        cosines = products / np.outer(norms, norms)
        cosine = float(cosines[np.triu_indices(replicas, 1)].mean())
    return {"cosine": cosine, **{f"norm_{m}": float(n) for m, n in enumerate(norms)}}
