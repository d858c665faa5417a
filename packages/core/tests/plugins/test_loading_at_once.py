"""Loading from several threads at once, in circles, and while the process forks."""

from __future__ import annotations

import os
from typing import Any

import pytest


def test_two_threads_load_at_once(site: Any) -> None:
    site.device("good", "print('IMPORTED'); import time; time.sleep(0.5)")
    said = site.run(
        """
        import threading
        from mortice import _plugins
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(_plugins.load("device", "good")))
            for _ in range(8)
        ]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(len(found), len(set(found)))
        """
    )
    assert said == "IMPORTED\n8 1\n"


def test_two_threads_load_a_broken_one(site: Any) -> None:
    site.device("bad", "print('IMPORTED'); import time; time.sleep(0.5); raise ValueError('boom')")
    said = site.run(
        """
        import threading
        from mortice import _plugins, errors
        told = []
        def load():
            try:
                _plugins.load("device", "bad")
            except errors.PluginBroken as error:
                assert "boom" in str(error)
                assert isinstance(error.__cause__, ValueError)
                told.append(1)
        threads = [threading.Thread(target=load) for _ in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        load()
        print(len(told))
        """
    )
    assert said == "IMPORTED\n4\n"


def test_circle_of_imports_and_loads_does_not_deadlock(site: Any) -> None:
    """One thread loads the plug-in, which imports ``shared``; another is importing ``shared``,
    whose body uses the plug-in. Each holds what the other waits for."""
    site.device("good", "import time; time.sleep(0.5); import shared")
    (site.path / "shared.py").write_text(
        "import time; time.sleep(1)\n"
        "from mortice import _plugins, errors\n"
        "try:\n    _plugins.load('device', 'good')\n"
        "except errors.PluginError as error:\n    print(error.state)\n"
    )
    said = site.run(
        """
        import threading, importlib
        from mortice import _plugins, errors
        def load():
            try:
                _plugins.load("device", "good")
            except errors.PluginError as error:
                print(error.state)
        threads = [
            threading.Thread(target=load, daemon=True),
            threading.Thread(target=importlib.import_module, args=("shared",), daemon=True),
        ]
        [t.start() for t in threads]
        [t.join(60) for t in threads]
        print([t.is_alive() for t in threads], _plugins.load("device", "good").__name__)
        """
    )
    assert "[False, False] Device" in said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_fork_while_another_thread_loads(site: Any) -> None:
    site.device(
        "slow",
        "import builtins, time\nbuiltins.began = True\n"
        "while not hasattr(builtins, 'forked'): time.sleep(0.01)",
    )
    site.device("good")
    said = site.run(
        """
        import builtins, os, threading, time, warnings
        from mortice import _plugins
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, on purpose
        thread = threading.Thread(target=_plugins.load, args=("device", "slow"))
        thread.start()
        while not hasattr(builtins, "began"):
            time.sleep(0.01)
        child = os.fork()
        if child == 0:
            print(_plugins.load("device", "good").__name__, flush=True)
            print(_plugins.state("device", "slow").state, flush=True)
            os._exit(0)
        builtins.forked = True
        thread.join()
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert said == "Device\nnot loaded\n"


def test_plugin_that_imports_mortice_and_uses_another(site: Any) -> None:
    site.device("other")
    site.device(
        "good",
        """
        import mortice
        from mortice import _plugins
        print(_plugins.load("device", "other").__module__)
        """,
    )
    said = site.run("from mortice import _plugins; print(_plugins.load('device', 'good'))")
    assert said == "acme_other\n<class 'acme_good.Device'>\n"


def test_plugin_that_uses_itself(site: Any) -> None:
    site.device("bad", "from mortice import _plugins; _plugins.load('device', 'bad')")
    said = site.run(
        """
        from mortice import _plugins, errors
        try:
            _plugins.load("device", "bad")
        except errors.PluginBroken as error:
            print(error)
        """
    )
    assert "is used while it is being loaded" in said
