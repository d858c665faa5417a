"""Compile backends: registering, finding, their options; PyTorch's defects are not repeated."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mortice
from mortice import compiler
from mortice._compile.declaration import chosen_options
from mortice._compile.registry import resolve
from mortice._compile.settings import Settings
from mortice._compile.stages import call_backend
from mortice.errors import (
    ArgumentError,
    BackendFailed,
    OptionError,
    PluginNotFound,
    RegistrationError,
)


def first(gm, example_inputs, *, options):
    return gm


def second(gm, example_inputs, *, options):
    return gm


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    from mortice._plugins import attempts, catalog
    from mortice._plugins.groups import KINDS

    for name in list(catalog.registered(KINDS["compile"])):
        catalog.unregister(KINDS["compile"], name)
        attempts.forget(KINDS["compile"], name)
    compiler.set_default_backend(None)


def test_those_built_in_are_listed_and_need_no_import() -> None:
    assert {"eager", "aot_eager", "aot_eager_decomp_partition"} <= set(compiler.list_backends())
    assert "null" not in compiler.list_backends()
    assert "null" in compiler.list_backends(None)
    assert "null" in compiler.list_backends(())
    assert compiler.lookup_backend("eager").__name__ == "eager"


def test_registering_gives_the_function_back_and_takes_its_name() -> None:
    assert compiler.register_backend(first) is first
    assert compiler.lookup_backend("first") is first
    assert "first" in compiler.list_backends()

    @compiler.register_backend(name="mine")
    def backend(gm, example_inputs):
        return gm

    assert compiler.lookup_backend("mine") is backend


def test_tags_hide_from_the_list_and_from_nothing_else() -> None:
    compiler.register_debug_backend(first, "d")
    compiler.register_experimental_backend(second, "e")
    assert not {"d", "e"} & set(compiler.list_backends())
    assert "d" in compiler.list_backends(("experimental",))
    assert compiler.lookup_backend("d") is first


def test_a_name_belongs_to_one_function() -> None:
    compiler.register_backend(first, "x")
    compiler.register_backend(first, "x")
    with pytest.raises(RegistrationError, match="compile backend 'x' is there already"):
        compiler.register_backend(second, "x")
    assert compiler.lookup_backend("x") is first
    compiler.register_backend(second, "x", replace=True)
    assert compiler.lookup_backend("x") is second


def test_a_definition_executed_again_takes_its_own_place() -> None:
    made = []
    for _ in range(2):

        def cell(gm, example_inputs):
            return gm

        made.append(compiler.register_backend(cell))
    assert compiler.lookup_backend("cell") is made[1]


def test_built_in_names_are_taken() -> None:
    with pytest.raises(RegistrationError, match="compile backend 'eager' is there already"):
        compiler.register_backend(first, "eager")


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(PluginNotFound, match="Did you mean 'aot_eager'"):
        compiler.lookup_backend("aot_eagr")


def test_the_default_says_how_to_install_it(site) -> None:
    code = """if True:
        import mortice
        assert mortice.compiler.get_default_backend() == "inductor"
        try:
            mortice.compiler.options_of()
        except RuntimeError as error:
            print(error)
        """
    # -S: of what is installed here, only what the folder links to.
    child = site.start("-S", "-c", code, PYTHONPATH=str(_without_inductor(site.root / "core")))
    said, errors = child.communicate(timeout=100)
    assert not errors
    assert "no compile backend 'inductor' is installed" in said
    assert "comes with the package mortice-inductor: pip install" in said
    assert 'backend="aot_eager"' in said


def _without_inductor(folder: Path) -> Path:
    """Make a folder with all that is on this process's path but mortice-inductor."""
    folder.mkdir()
    for entry in map(Path, filter(os.path.isdir, sys.path)):
        if not any((entry / name / "__init__.py").is_file() for name in ("mortice", "numpy")):
            continue
        for found in entry.iterdir():
            link = folder / found.name
            if found.suffix != ".pth" and "inductor" not in found.name and not link.exists():
                link.symlink_to(found)
    return folder


def test_the_default_is_set_by_name_or_function() -> None:
    compiler.set_default_backend("aot_eager")
    assert compiler.get_default_backend() == "aot_eager"
    assert resolve(None).name == "aot_eager"
    compiler.set_default_backend(first)
    assert resolve(None).fn is first
    with pytest.raises(PluginNotFound, match="nonesuch"):
        compiler.set_default_backend("nonesuch")
    assert compiler.get_default_backend() is first
    compiler.set_default_backend()
    assert compiler.get_default_backend() == "inductor"


@pytest.mark.parametrize("backend", [3, 1.5, [], object()])
def test_what_is_no_backend_is_refused_at_once(backend) -> None:
    with pytest.raises(ArgumentError, match="name of a compile backend or a function"):
        compiler.lookup_backend(backend)


# -- options --------------------------------------------------------------------------------------

ROWS = {
    "level": {"type": "int", "default": 2, "doc": "how hard to try"},
    "fast": {"type": "bool", "default": False},
    "ratio": {"type": "float", "default": 0.5},
    "tile": {"type": "list", "default": [8, 8]},
    "layout": {"type": "str", "default": "rows", "choices": ["rows", "columns"]},
}


def options(given, mode=None, modes=None):
    compiler.register_backend(first, "o", options=ROWS, modes=modes or {})
    found = resolve("o")
    return chosen_options(
        found.name, found.declaration, given, configured=found.configured, mode=mode
    )


def test_options_have_defaults_and_help() -> None:
    assert dict(options({})) == {
        "level": 2, "fast": False, "ratio": 0.5, "tile": [8, 8], "layout": "rows",
    }  # fmt: skip
    assert compiler.list_options("o") == sorted(ROWS)
    assert compiler.options_of("o")["level"].doc == "how hard to try"


def test_a_misspelt_option_gets_the_nearest() -> None:
    with pytest.raises(OptionError, match="no option 'levle'.*Did you mean 'level'"):
        options({"levle": 3})
    with pytest.raises(RuntimeError, match="It declares: fast, layout, level, ratio, tile"):
        options({"zzz": 3})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("level", "3", "is '3'; expected int"),
        ("level", True, "is True; expected int"),
        ("fast", 1, "is 1; expected bool"),
        ("ratio", "a", "expected float"),
        ("layout", "diagonal", "expected one of 'rows', 'columns'"),
    ],
)
def test_a_wrong_type_is_refused(name, value, said) -> None:
    with pytest.raises(OptionError, match=said):
        options({name: value})


def test_a_whole_number_is_a_float() -> None:
    assert options({"ratio": 1})["ratio"] == 1


def test_the_given_dict_is_never_changed_nor_kept() -> None:
    tile = [16, 16]
    given = {"level": 3, "tile": tile}
    chosen = options(given)
    assert given == {"level": 3, "tile": [16, 16]}
    tile.append(1)
    given["level"] = 4
    assert chosen["tile"] == [16, 16]
    assert chosen["level"] == 3
    chosen["tile"].append(9)
    assert options({})["tile"] == [8, 8]
    with pytest.raises(TypeError):
        chosen["level"] = 5  # type: ignore[index]


def test_hyphens_are_underscores() -> None:
    compiler.register_backend(first, "h", options={"max_level": {"type": "int", "default": 1}})
    told = resolve("h").declaration
    assert chosen_options("h", told, {"max-level": 2})["max_level"] == 2


def test_built_in_backends_take_no_nonsense() -> None:
    for name in ("eager", "aot_eager"):
        told = resolve(name).declaration
        with pytest.raises(OptionError, match=f"backend '{name}' has no option 'nonsense'"):
            chosen_options(name, told, {"nonsense": 1})


def test_a_plain_function_is_given_what_it_is_given() -> None:
    found = resolve(lambda gm, example_inputs, options: gm)
    assert dict(chosen_options("f", found.declaration, {"a": 1})) == {"a": 1}


def test_a_backend_that_checks_options_itself_may_list_them() -> None:
    def check(given) -> None:
        if "b" in given:
            raise OptionError("no b")

    listed = {"a": compiler.Option("int", 1, "the first")}
    compiler.register_backend(
        lambda gm, example_inputs, options: gm, "own", options=None, check=check,
        describe=lambda: listed,
    )  # fmt: skip
    assert compiler.list_options("own") == ["a"]
    assert compiler.options_of("own")["a"].doc == "the first"
    with pytest.raises(OptionError, match="no b"):
        mortice.compile(abs, backend="own", options={"b": 1})


def test_modes_stand_for_options() -> None:
    modes = {"fast": {"level": 9}}
    assert options({}, "fast", modes)["level"] == 9
    assert options({"level": 1}, "fast", modes)["level"] == 1
    assert options({}, "default", modes)["level"] == 2
    assert compiler.list_mode_options(backend="o") == {"default": {}, "fast": {"level": 9}}
    assert compiler.list_mode_options("fast", backend="o") == {"level": 9}
    with pytest.raises(OptionError, match="no mode 'fats'; it has: default, fast. Did you mean"):
        compiler.list_mode_options("fats", backend="o")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"options": {"a": {"type": "int", "default": "x"}}}, "default is 'x'; expected int"),
        ({"options": {"a": {"type": "integer", "default": 1}}}, "unknown type 'integer'"),
        ({"options": {"a": 1}}, r'write \{"type": "int"'),
        ({"modes": {"m": {"a": 1}}}, "sets 'a', which is none of its options"),
    ],
)
def test_a_declaration_is_checked(told, said) -> None:
    with pytest.raises(RegistrationError, match=said):
        compiler.register_backend(lambda gm, example_inputs: gm, "bad", **told)
    assert "bad" not in compiler.list_backends(None)


# -- what a backend returns -----------------------------------------------------------------------


def _settings(fn, **options):
    return Settings(backend=fn, backend_name="b", compile_segment=call_backend, options=options)


def test_a_backend_without_options_is_called_without() -> None:
    assert call_backend(len, [], _settings(lambda gm, inputs: gm)) is len
    with pytest.raises(BackendFailed, match="unexpected keyword argument 'options'"):
        call_backend(len, [], _settings(lambda gm, inputs: gm, a=1))


def test_what_a_backend_raises_is_named_and_kept() -> None:
    def broken(gm, inputs):
        raise KeyError("matmul")

    with pytest.raises(BackendFailed, match="backend 'b' raised KeyError: 'matmul'") as caught:
        call_backend(len, [], _settings(broken))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_result_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(BackendFailed, match="returned NoneType, and a callable is expected"):
        call_backend(len, [], _settings(lambda gm, inputs: None))


# -- installed backends ---------------------------------------------------------------------------

MODULE = """
    import mortice.backend, mortice.compiler

    def spin(gm, example_inputs, *, options):
        return gm

    @mortice.backend.hookimpl
    def mortice_compile_backend(name):
        return spin
"""
ENTRY = {"mortice.compile_backends": {"spin": "acme_spin"}}


def test_an_installed_backend_and_its_manifest(site) -> None:
    manifest = """
        hook_api = ">=1,<2"
        [compile.spin.options]
        level = {type = "int", default = 1, doc = "how hard"}
        [compile.spin.modes]
        hard = {level = 7}
    """
    site.add("acme-spin", entries=ENTRY, modules={"acme_spin.py": MODULE}, manifest=manifest)
    said = site.run("""
        import sys, mortice
        print(mortice.compiler.list_backends(), "acme_spin" in sys.modules)
        print(mortice.compiler.lookup_backend("spin").__name__, "acme_spin" in sys.modules)
        print(mortice.compiler.options_of("spin"))
        print(mortice.compiler.list_mode_options(backend="spin"))
        """)  # fmt: skip
    lines = said.splitlines()
    assert "'spin'" in lines[0]
    assert lines[0].endswith("False")
    assert lines[1] == "spin True"
    assert "level" in lines[2] and "how hard" in lines[2]
    assert lines[3] == "{'default': {}, 'hard': {'level': 7}}"


def test_the_config_file_sets_options(site) -> None:
    manifest = 'hook_api = ">=1"\n[compile.spin.options]\nlevel = {type = "int", default = 1}'
    site.add("acme-spin", entries=ENTRY, modules={"acme_spin.py": MODULE}, manifest=manifest)
    folder = site.home / "config" / "mortice"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[options."compile:spin"]\nlevel = 5\n')
    said = site.run("""
        from mortice._compile.registry import resolve
        print(resolve("spin").configured)
        """)  # fmt: skip
    assert said.strip() == "{'level': 5}"


def test_a_mode_of_a_manifest_is_checked(site) -> None:
    manifest = 'hook_api = ">=1"\n[compile.spin.modes]\nhard = {level = 7}'
    site.add("acme-spin", entries=ENTRY, modules={"acme_spin.py": MODULE}, manifest=manifest)
    said = site.cli("why", "compile:spin", status=1)
    assert "mode 'hard': level is none of its options" in said


def test_a_plug_in_that_also_registers_itself_is_fine(site) -> None:
    module = MODULE + "    mortice.compiler.register_experimental_backend(spin)\n"
    site.add("acme-spin", entries=ENTRY, modules={"acme_spin.py": module})
    said = site.run("""
        import mortice
        first = mortice.compiler.lookup_backend("spin")
        import acme_spin
        print(first is acme_spin.spin is mortice.compiler.lookup_backend("spin"))
        print("spin" in mortice.compiler.list_backends())
        """)  # fmt: skip
    assert said.split() == ["True", "True"]


def test_two_distributions_with_one_name_are_a_conflict_that_names_both(site) -> None:
    site.add("acme-spin", entries=ENTRY, modules={"acme_spin.py": MODULE})
    site.add(
        "other-spin",
        "2.0",
        entries={"mortice.compile_backends": {"spin": "other_spin"}},
        modules={"other_spin.py": MODULE},
    )
    code = """
        import mortice
        try:
            print(mortice.compiler.lookup_backend("spin").__module__)
        except RuntimeError as error:
            print(error)
    """
    said = site.run(code)
    assert "conflict" in said and "acme-spin 1.0" in said and "other-spin 2.0" in said
    assert site.run(code, MORTICE_PREFER_PLUGINS="compile:spin=other-spin").strip() == "other_spin"


def test_an_installed_backend_cannot_take_a_built_in_name(site) -> None:
    site.add(
        "acme-spin",
        entries={"mortice.compile_backends": {"eager": "acme_spin"}},
        modules={"acme_spin.py": MODULE},
    )
    said = site.run("""
        import mortice
        print(mortice.compiler.lookup_backend("eager").__module__)
        print([one.status for one in mortice.plugins.why("eager")])
        """)  # fmt: skip
    assert "mortice._compile.backends" in said
    assert "conflict: the name 'eager' is mortice's own" in said


def test_a_broken_backend_is_named_with_its_distribution(site) -> None:
    site.add("acme-spin", entries=ENTRY, modules={"acme_spin.py": "import no_such_library"})
    said = site.run("""
        import mortice
        print("eager" in mortice.compiler.list_backends())
        try:
            mortice.compiler.lookup_backend("spin")
        except RuntimeError as error:
            print(error)
        """)  # fmt: skip
    assert said.splitlines()[0] == "True"
    assert "acme-spin 1.0" in said
    assert "it imports no_such_library, which is not installed" in said


def test_a_backend_installed_while_the_process_runs_is_found(site) -> None:
    said = site.run(f"""
        import pathlib, mortice, time
        try:
            mortice.compiler.lookup_backend("spin")
        except RuntimeError as error:
            print("none")
        folder = pathlib.Path({str(site.path)!r})
        info = folder / "acme_spin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: acme-spin\\nVersion: 1.0\\n")
        (info / "entry_points.txt").write_text("[mortice.compile_backends]\\nspin = acme_spin\\n")
        (folder / "acme_spin.py").write_text(
            "import mortice.backend\\n"
            "@mortice.backend.hookimpl\\n"
            "def mortice_compile_backend(name):\\n    return print\\n"
        )
        time.sleep(1.1)
        print(mortice.compiler.lookup_backend("spin"))
        """)  # fmt: skip
    assert said.splitlines() == ["none", "<built-in function print>"]
