"""Two hosts as network namespaces: one gang over a network that is not the loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

NAMES = (f"mortice-a-{os.getpid()}", f"mortice-b-{os.getpid()}")
ADDRESSES = ("10.77.31.1", "10.77.31.2")


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    if sys.platform != "linux" or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need Linux, root and iproute2")
    for name in NAMES:
        ip("netns", "delete", name, check=False)
    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", "veth-a", "netns", NAMES[0], "type", "veth", "peer", "veth-b", "netns", NAMES[1])  # fmt: skip
        for name, link, address in zip(NAMES, ("veth-a", "veth-b"), ADDRESSES):
            ip("-n", name, "address", "add", f"{address}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield NAMES
    finally:
        for name in NAMES:
            ip("netns", "delete", name, check=False)


SCRIPT = """
import os, signal, time
import mortice, mortice.distributed as dist
dist.init_process_group("gloo", timeout=60)
t = mortice.ones(1000) * (dist.get_rank() + 1)
dist.all_reduce(t)
print("sum", t[0].item(), "attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    printed = [f"{__file__}.{rank}" for rank in range(4)]
    open(printed[dist.get_rank()], "w").close()
    if dist.get_rank() == 3:
        while not all(map(os.path.exists, printed)):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)  # the first failure that a node hears of is to be rank 3's
dist.barrier()
dist.destroy_process_group()
"""


def test_a_gang_over_two_hosts(hosts: tuple[str, str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    common = ["-n", "2", "--nnodes", "2", "--master-addr", ADDRESSES[0], "--master-port", "29777"]
    common += ["--max-restarts", "1", "--grace", "2"]
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-m", "mortice", "run", *common,
             "--node-rank", str(node), str(script)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for node, name in enumerate(hosts)
    ]  # fmt: skip
    results = [one.communicate(timeout=100) for one in started]
    assert [one.returncode for one in started] == [0, 0], results
    out = "".join(found for found, _ in results)
    assert out.count("sum 10.0 attempt 0") == 4
    assert out.count("sum 10.0 attempt 1") == 4
    assert all("rank 3 (process" in err for _, err in results)
