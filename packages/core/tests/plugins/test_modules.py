"""``mortice.<name>`` from a plug-in: one module object under both names."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def acme(site: Any) -> Any:
    """An environment where acme-toys provides mortice.toys and mortice.attic.box."""
    site.add(
        "acme-toys",
        entries={"mortice.modules": {"toys": "acme_toys", "attic.box": "acme_box"}},
        modules={
            "acme_toys/__init__.py": "print('IMPORTED'); from . import ball\nclass Toy: pass\n",
            "acme_toys/ball.py": "class Ball: pass\nimport mortice.toys\n",
            "acme_toys/sub/__init__.py": "",
            "acme_toys/sub/leaf.py": "x = 1\nif __name__ == '__main__': print('run', __package__)",
            "acme_box.py": "inside = 'dust'\n",
        },
        manifest="hook_api = '>=1'\n[module.toys]\nsummary = 'toys'",
    )
    return site


@pytest.mark.parametrize(
    "first",
    [
        "import mortice.toys",
        "import mortice.toys.ball",
        "from mortice.toys import ball",
        "import acme_toys",
        "import acme_toys.ball",
        "from mortice._plugins import modules; mortice.toys = modules.get('toys')",
    ],
)
def test_one_object_under_both_names(acme: Any, first: str) -> None:
    said = acme.run(
        f"""
        import sys, mortice
        from mortice._plugins import modules
        modules.install()
        {first}
        import mortice.toys.ball, mortice.toys.sub.leaf, acme_toys.sub.leaf, acme_toys.ball
        assert sys.modules["mortice.toys"] is sys.modules["acme_toys"] is mortice.toys
        assert mortice.toys.ball is acme_toys.ball
        assert mortice.toys.ball.Ball is acme_toys.ball.Ball
        assert mortice.toys.sub.leaf is acme_toys.sub.leaf
        assert acme_toys.__name__ == acme_toys.__spec__.name == "acme_toys"
        assert acme_toys.ball.__spec__.name == "acme_toys.ball"
        import importlib
        assert importlib.reload(acme_toys.ball) is acme_toys.ball
        """
    )
    assert said.count("IMPORTED") == 1


def test_import_alone_does_not_import_it(acme: Any) -> None:
    said = acme.run(
        """
        import mortice, sys
        from mortice._plugins import modules
        modules.install(); modules.install()
        assert sum(isinstance(f, modules.ModuleFinder) for f in sys.meta_path) == 1
        import importlib.util
        assert importlib.util.find_spec("mortice.toys") is not None
        assert importlib.util.find_spec("mortice.nothing") is None
        print(modules.names())
        """
    )
    assert "IMPORTED" not in said
    assert "'toys'" in said


def test_nested_name_without_a_parent(acme: Any) -> None:
    said = acme.run(
        """
        from mortice._plugins import modules
        modules.install()
        import mortice.attic
        print(mortice.attic.box.inside)
        from mortice.attic import box
        try:
            mortice.attic.bax
        except AttributeError as error:
            print(error)
        """
    )
    assert "dust" in said
    assert "module 'mortice.attic' has no attribute 'bax'" in said


def test_core_names_are_reserved(site: Any) -> None:
    site.add(
        "acme-evil",
        entries={"mortice.modules": {"errors": "acme_evil", "_base": "acme_evil"}},
        modules={"acme_evil.py": "print('EVIL')"},
    )
    said = site.run(
        """
        from mortice._plugins import modules
        modules.install()
        import mortice.errors
        import mortice._base
        print(mortice.errors.__name__)
        """
    )
    assert said == "mortice.errors\n"
    assert "mortice.errors is core's own module" in site.cli("why", "errors", status=1)
    assert "mortice._base is core's own module" in site.cli("why", "_base", status=1)


@pytest.mark.parametrize("how", ["import mortice.bad", "from mortice import bad"])
def test_broken_module(site: Any, how: str) -> None:
    site.add(
        "acme-bad",
        entries={"mortice.modules": {"bad": "acme_bad"}},
        modules={"acme_bad.py": "raise ValueError('boom')"},
    )
    said = site.run(
        f"""
        from mortice import errors
        from mortice._plugins import modules
        modules.install()
        for _ in range(2):
            try:
                {how}
            except ImportError as error:
                print(error)
        try:
            modules.get("bad")
        except errors.PluginError as error:
            print(type(error).__name__, error.state, repr(error.__cause__))
        """
    )
    assert said.count("ValueError: boom") >= 1
    if how.startswith("import"):
        assert said.count("module 'bad' cannot be used: acme-bad 1.0 (bad = acme_bad in") == 2
    assert "PluginImportError broken" in said


def test_disabled_module(acme: Any) -> None:
    said = acme.run(
        """
        from mortice._plugins import modules
        modules.install()
        try:
            import mortice.toys
        except ImportError as error:
            print(error.state, error)
        """,
        MORTICE_DISABLE_PLUGINS="acme-toys",
    )
    assert said.startswith("disabled module 'toys' cannot be used: acme-toys 1.0")


def test_missing_names(acme: Any) -> None:
    said = acme.run(
        """
        from mortice._plugins import modules
        modules.install()
        for name in ("toyz", "no_such_thing", "__wrapped__", "_private"):
            try:
                modules.get(name)
            except AttributeError as error:
                print(type(error).__name__, error)
        try:
            import mortice.toys.bell
        except ModuleNotFoundError as error:
            print(error)
        try:
            import mortice.no_such_thing
        except ModuleNotFoundError as error:
            print(error)
        """
    )
    assert "UnknownName module 'mortice' has no attribute 'toyz'. Did you mean 'toys'?" in said
    assert "No module named 'mortice.toys.bell'" in said
    assert "No module named 'mortice.no_such_thing'" in said
    assert "has no attribute '_private'." in said


def test_run_as_a_module(acme: Any) -> None:
    code = """
    import runpy
    from mortice._plugins import modules
    modules.install()
    print(runpy.run_module("mortice.toys.sub.leaf", run_name="__main__")["x"])
    """
    assert "run mortice.toys.sub\n1\n" in acme.run(code)


def test_pickle_round_trip(acme: Any) -> None:
    said = acme.run(
        """
        from mortice._plugins import modules
        modules.install()
        import mortice.toys, pickle
        toy = pickle.loads(pickle.dumps(mortice.toys.Toy()))
        assert type(toy) is mortice.toys.Toy
        print(type(toy).__module__)
        """
    )
    assert said == "IMPORTED\nacme_toys\n"


def test_well_known_module_not_installed(site: Any) -> None:
    said = site.run(
        """
        from mortice._plugins import modules, resolution, catalog
        modules.install()
        catalog.entries = lambda *a, **k: []
        try:
            import mortice.nn
        except ModuleNotFoundError as error:
            print(error)
        try:
            modules.get("optim")
        except AttributeError as error:
            print(error)
        """
    )
    assert (
        said.count("It comes with the package mortice-nn: pip install wheelhouse/mortice*.whl") == 2
    )


def test_names_that_core_has_and_has_not() -> None:
    from mortice._plugins.catalog import core_owns

    for name in ("errors", "utils", "_base", "_base.config"):
        assert core_owns(name), name
    # nn, utils.data: only stubs for type checkers lie there
    for name in ("nn", "utils.data", "testing", "errors.nothing", "nothing.errors"):
        assert not core_owns(name), name


@pytest.mark.parametrize("name", ["nn", "utils.data", "testing"])
def test_stub_directories_are_no_modules(site: Any, name: str) -> None:
    """Core ships stubs for type checkers under these names; a plug-in provides the module."""
    site.add(
        "mortice-nn",  # hides an installed one: it comes first on the path
        entries={"mortice.modules": {"nn": "acme_box", "utils.data": "acme_box"}},
        modules={"acme_box.py": "inside = 'dust'\n"},
    )
    site.add(
        "mortice-testing",
        entries={"mortice.modules": {"testing": "acme_box"}},
    )
    said = site.run(f"import mortice.{name}; print(mortice.{name}.inside)")
    assert said == "dust\n"
    said = site.run(f"import mortice; print(mortice.{name}.inside)")
    assert said == "dust\n"
    assert f"module:{name}: not loaded, chosen" in site.cli("why", f"module:{name}")
