"""DeviceMesh: ranks as a grid, with a process group along each of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mortice._tensor.make import wrap_array
from mortice._tensor.tensor import Tensor
from mortice.errors import ArgumentError, InvalidState, InvalidValue, nearest

from . import control
from .group import ProcessGroup, default_group


class DeviceMesh:
    """A grid of ranks of the whole, all for one device type.

    ``mesh`` is a nested list, array or tensor of ranks, each at most once; all ranks of the whole
    make the same meshes in the same order. ``mesh_dim_names`` names the dimensions, for
    ``mesh["name"]`` and ``get_group("name")``.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        _groups: list[ProcessGroup] | None = None,
    ) -> None:
        self.device_type = device_type
        self._ranks = np.array(
            mesh.tolist() if isinstance(mesh, Tensor) else mesh, dtype=np.int64, ndmin=1
        )
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        self._check()
        me = default_group().rank()
        place = np.argwhere(self._ranks == me)
        self._coordinate = [int(n) for n in place[0]] if len(place) else None
        self._groups = self._made_groups() if _groups is None else _groups
        self._flattened: dict[str, DeviceMesh] = {}

    def _check(self) -> None:
        flat = self._ranks.reshape(-1)
        world = default_group().size()
        if len(np.unique(flat)) != flat.size or not ((flat >= 0) & (flat < world)).all():
            raise InvalidValue(
                f"DeviceMesh: {flat.tolist()} are to be different ranks from 0 to {world - 1}."
            )
        names = self.mesh_dim_names
        if names is not None and (len(names) != self._ranks.ndim or len(set(names)) != len(names)):
            raise InvalidValue(
                f"DeviceMesh: mesh_dim_names {names} are to be {self._ranks.ndim} different names."
            )

    def _made_groups(self) -> list[ProcessGroup]:
        """The groups along each dimension that this rank is in; all ranks make all of them."""
        found: list[ProcessGroup] = []
        if self._ranks.ndim == 1 and self._ranks.tolist() == list(default_group().ranks):
            return [default_group()]
        for dim in range(self._ranks.ndim):
            lines = np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim])
            for line in lines:
                group = control.new_group([int(n) for n in line])
                if isinstance(group, ProcessGroup):
                    found.append(group)
        return found

    # -- shape -----------------------------------------------------------------------------------

    @property
    def mesh(self) -> Tensor:
        """The ranks as an int64 tensor."""
        return wrap_array(self._ranks.copy())

    @property
    def ndim(self) -> int:
        return self._ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._ranks.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """Number of ranks, in all or along a dimension."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def get_rank(self) -> int:
        """This process's rank of the whole."""
        return default_group().rank()

    def get_coordinate(self) -> list[int] | None:
        """This rank's place in the mesh; None outside it."""
        return None if self._coordinate is None else list(self._coordinate)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place along a dimension, which may be left out if there is one."""
        return self.get_group(mesh_dim).rank()

    # -- groups and parts ------------------------------------------------------------------------

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise InvalidValue(f"this mesh has {self.ndim} dimensions; say which.")
            return 0
        if isinstance(mesh_dim, int):
            if not -self.ndim <= mesh_dim < self.ndim:
                raise InvalidValue(f"dimension {mesh_dim} of a mesh of {self.ndim}.")
            return mesh_dim % self.ndim
        names = self.mesh_dim_names or ()
        if mesh_dim not in names:
            known = nearest(mesh_dim, names) or f" It has {', '.join(names) or 'no names'}."
            raise InvalidValue(f"the mesh has no dimension {mesh_dim!r}.{known}")
        return names.index(mesh_dim)

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of this rank's line along a dimension."""
        if self._coordinate is None:
            raise InvalidState(f"rank {self.get_rank()} is not in this mesh, and has no group.")
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of this rank's lines, one for each dimension."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the mesh through this rank along the named dimensions, in that order."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        if len(wanted) == 1 and wanted[0] in self._flattened:
            return self._flattened[wanted[0]]
        if self._coordinate is None:
            raise InvalidState(
                f"rank {self.get_rank()} is not in this mesh, and has no part of it."
            )
        dims = [self._dim(name) for name in wanted]
        index = tuple(slice(None) if d in dims else n for d, n in enumerate(self._coordinate))
        part = self._ranks[index]
        kept = sorted(dims)
        part = part.transpose([kept.index(d) for d in dims])
        return DeviceMesh(
            self.device_type,
            part,
            mesh_dim_names=wanted,
            _groups=[self._groups[d] for d in dims],
        )

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """All dimensions as one; found again by its name in the mesh it was made from."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or map(str, range(self.ndim)))
        made = DeviceMesh(self.device_type, self._ranks.reshape(-1), mesh_dim_names=(name,))
        self._flattened[name] = made
        return made

    @staticmethod
    def from_group(
        group: ProcessGroup, device_type: str, *, mesh_dim_names: Sequence[str] | None = None
    ) -> DeviceMesh:
        """The mesh of one dimension whose group is there already."""
        if not isinstance(group, ProcessGroup):
            raise ArgumentError(f"from_group: found {type(group).__name__}, not a ProcessGroup.")
        return DeviceMesh(
            device_type, list(group.ranks), mesh_dim_names=mesh_dim_names, _groups=[group]
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DeviceMesh)
            and self.device_type == other.device_type
            and self.mesh_dim_names == other.mesh_dim_names
            and self._ranks.tolist() == other._ranks.tolist()
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.mesh_dim_names, self._ranks.tobytes()))

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self._ranks.tolist()}{names})"


def init_device_mesh(
    device_type: str, mesh_shape: Sequence[int], *, mesh_dim_names: Sequence[str] | None = None
) -> DeviceMesh:
    """A mesh of all ranks in the given shape, the last dimension of neighbours.

    Makes the process group first if there is none.
    """
    if not control.is_initialized():
        control.init_process_group()
    world = default_group().size()
    shape = tuple(int(n) for n in mesh_shape)
    if int(np.prod(shape)) != world:
        raise InvalidValue(
            f"init_device_mesh: {shape} holds {int(np.prod(shape))} ranks, and there are {world}."
        )
    return DeviceMesh(device_type, np.arange(world).reshape(shape), mesh_dim_names=mesh_dim_names)
