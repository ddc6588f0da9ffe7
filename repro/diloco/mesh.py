"""The mesh replica × data × fsdp and the sharding of everything that lives on it.

The replica axis is the slow one: slices are laid along it first. drjax only logs when a mesh lacks its
axis, and runs unsharded; so the axis is checked here, loudly, and the mesh is always passed on.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from repro.diloco.resources import Resources
from repro.errors import UserError
from repro.spec.shapes import is_norm

REPLICA, DATA, ROWS, SEQUENCE = "replica", "data", "fsdp", "sequence"
FSDP = (ROWS, SEQUENCE)  # parameters are sharded over both: devices that hold whole sequences, or parts of one


def make_mesh(resources: Resources, devices: list[Any] | None = None) -> Mesh:
    """A mesh over the first `resources.devices` devices, ordered by slice; UserError when there are too few."""
    available = jax.devices() if devices is None else devices
    if len(available) < resources.devices:
        raise UserError(
            f"the mesh {resources.replica} x {resources.data} x {resources.fsdp} needs {resources.devices} devices "
            f"and {len(available)} are there: set JAX_NUM_CPU_DEVICES, or choose a smaller mesh."
        )
    ordered = sorted(available, key=lambda d: (getattr(d, "slice_index", 0), d.id))[: resources.devices]
    rows = resources.fsdp // resources.sequence
    grid = np.array(ordered).reshape(resources.replica, resources.data, rows, resources.sequence)
    return Mesh(grid, (REPLICA, DATA, *FSDP), axis_types=(AxisType.Auto,) * 4)


def width(mesh: Mesh) -> int:
    """Devices that share one copy of the parameters."""
    return mesh.shape[ROWS] * mesh.shape[SEQUENCE]


def leaf_spec(name: str, ndim: int, lead: str | None = None) -> PartitionSpec:
    """Rows over fsdp, the last axis never; `lead` is the mesh axis of a leading replica axis.

    `name` is the leaf's name and `ndim` counts the leading axis when there is one.
    """
    rank = ndim - (1 if lead else 0)
    if is_norm(name) or rank < 2:
        return PartitionSpec(lead) if lead else PartitionSpec()
    middle = [None] * (ndim - (3 if lead else 2))
    return PartitionSpec(*([lead] if lead else []), *middle, FSDP, None)


def replicated_leaf_spec(name: str, ndim: int) -> PartitionSpec:
    """Like `leaf_spec` for a leaf with a leading replica axis that every device holds in whole."""
    if is_norm(name):
        return PartitionSpec()
    return PartitionSpec(*[None] * (ndim - 2), FSDP, None)


def tree_shardings(mesh: Mesh, tree: Any, lead: str | None = None, memory: str | None = None) -> Any:
    """NamedShardings of parameters, or of what an optimiser keeps of them: the last path entry is the leaf's name.

    What has a parameter's name and shape lies as the parameter does, single numbers on every device. `memory` is the
    kind of memory that arrays rest in; single numbers stay on the device.
    """

    def sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        return NamedSharding(
            mesh, leaf_spec(leaf_name(path), leaf.ndim, lead), memory_kind=memory if leaf.ndim else None
        )

    return jax.tree.map_with_path(sharding, tree)


def leaf_name(path: tuple[Any, ...]) -> str:
    """The name of a leaf from its key path (dict key or attribute)."""
    return jax.tree_util.keystr(path[-1:], simple=True)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """(M, B/M, S+1): replicas over the replica axis, sequences over data and the devices that hold whole ones."""
    return NamedSharding(mesh, PartitionSpec(REPLICA, (DATA, ROWS), None))


def replicated(mesh: Mesh) -> NamedSharding:
    """Every device holds everything."""
    return NamedSharding(mesh, PartitionSpec())


def per_replica(mesh: Mesh) -> NamedSharding:
    """(M, ...): one entry a replica."""
    return NamedSharding(mesh, PartitionSpec(REPLICA))
