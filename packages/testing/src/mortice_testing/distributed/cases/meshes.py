"""Grids of ranks."""

from __future__ import annotations

import pytest

import mortice
import mortice.distributed as dist
from mortice.distributed.device_mesh import DeviceMesh, init_device_mesh


def case_a_line(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("data",))
    assert (mesh.shape, mesh.ndim, mesh.size()) == ((size,), 1, size)
    assert mesh.get_group() is mesh.get_group("data") is dist.group.WORLD
    assert (mesh.get_coordinate(), mesh.get_local_rank()) == ([rank], rank)
    assert mesh["data"] == mesh
    with pytest.raises(ValueError, match="holds"):
        init_device_mesh("cpu", (size, 2))
    with pytest.raises(ValueError, match="different ranks"):
        DeviceMesh("cpu", [0, 0])
    with pytest.raises(ValueError, match="Did you mean 'data'"):
        mesh.get_group("dat")


def case_a_grid(rank: int, size: int) -> None:
    if size != 4:
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    assert mesh.get_coordinate() == [rank // 2, rank % 2]
    assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
    for name, members in (
        ("columns", [rank // 2 * 2, rank // 2 * 2 + 1]),
        ("rows", [rank % 2, rank % 2 + 2]),
    ):
        group = mesh.get_group(name)
        assert dist.get_process_group_ranks(group) == members
        t = mortice.tensor([float(rank)])
        dist.all_reduce(t, group=group)
        assert t.item() == sum(members)
        part = mesh[name]
        assert part.shape == (2,)
        assert part.get_group() is group
    turned = mesh["columns", "rows"]
    assert turned.mesh.tolist() == [[0, 2], [1, 3]]
    assert turned.get_coordinate() == [rank % 2, rank // 2]
    flat = mesh._flatten("all")
    assert flat.shape == (4,)
    assert mesh["all"] is flat
    assert len(mesh.get_all_groups()) == 2
    with pytest.raises(ValueError, match="2 dimensions"):
        mesh.get_group()
    for group in mesh.get_all_groups():
        dist.destroy_process_group(group)


def case_a_part(rank: int, size: int) -> None:
    """A mesh of some ranks: the others help to make it, and are not in it."""
    if size < 3:
        return
    mesh = DeviceMesh("cpu", [0, size - 1])
    if rank in (0, size - 1):
        t = mortice.ones(1)
        dist.all_reduce(t, group=mesh.get_group())
        assert t.item() == 2
        dist.destroy_process_group(mesh.get_group())
    else:
        assert mesh.get_coordinate() is None
        with pytest.raises(RuntimeError, match="not in this mesh"):
            mesh.get_group()
