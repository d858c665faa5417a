"""Write the table of docs/devices.md: what passes natively, and what by falling back, by device.

    python docs/devices_table.py DEVICE...           measure these, and write their columns
    python docs/devices_table.py --check DEVICE...   exit 1 if less passes natively than is written

Columns of other devices stay as they are, since not every environment has every device. More than is
written is no failure: a decomposition in core makes devices better that it knows nothing of.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mortice_testing.conformance import measure_all
from mortice_testing.conformance.command import table

PAGE = Path(__file__).with_name("devices.md")
BEGIN, END = "<!-- table: docs/devices_table.py -->\n", "<!-- end of table -->\n"
ORDER = ("cpu", "opencl", "npu", "ref", "null")

Columns = dict[str, list[str]]


def read(text: str) -> tuple[Columns, dict[str, str]]:
    """The columns and the lists of operators that are written now."""
    inside = text.partition(BEGIN)[2].partition(END)[0]
    rows = [line.strip("| ").split(" | ") for line in inside.splitlines() if line.startswith("| ")]
    columns = {column[0]: list(column[1:]) for column in zip(*rows)}
    lists = (line for line in inside.splitlines() if line.startswith("- `"))
    return columns, {line.split("`")[1]: line for line in lists}


def measured(devices: list[str]) -> tuple[Columns, dict[str, str]]:
    """The same, as it is now."""
    found = {device: measure_all(device) for device in devices}
    columns = {column[0]: list(column[1:]) for column in zip(*table(found))}
    lists: dict[str, str] = {}
    for device, outcomes in found.items():
        names = sorted(
            {one.told.removeprefix("aten::") for one in outcomes if one.how == "fallback"}
        )
        if names:
            lists[device] = f"- `{device}`: {', '.join(f'`{name}`' for name in names)}."
    return columns, lists


def written(columns: Columns, lists: dict[str, str]) -> str:
    """Markdown of the table and the lists."""
    heads = ["family", "cases", *(name for name in ORDER if name in columns)]
    lines = [heads, *zip(*(columns[name] for name in heads))]
    rows = [f"| {' | '.join(line)} |" for line in lines]
    rows.insert(1, f"|{'---|' * len(heads)}")
    told = [lists[name] for name in ORDER if name in lists]
    return "\n".join([*rows, "", "What falls back:", "", *told, ""])


def worse(before: Columns, now: Columns) -> list[str]:
    """Where fewer cases pass natively, or any fails, or the cases are others."""
    if before.get("family") != now["family"] or before.get("cases") != now["cases"]:
        return ["the cases are not those that are written"]
    found: list[str] = []
    for device, cells in now.items():
        if device in ("family", "cases"):
            continue
        old = before.get(device, ["0 / 0"] * len(cells))
        for family, was, new in zip(now["family"], old, cells):
            if "failed" in new or int(new.split(" / ")[0]) < int(was.split(" / ")[0]):
                found.append(f"{family} on {device}: {new}, written {was}")
    return found


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    devices = [name for name in arguments if name != "--check"] or ["cpu", "ref", "null"]
    text = PAGE.read_text(encoding="utf-8")
    columns, lists = read(text)
    now, told = measured(devices)
    if check:
        found = worse(columns, now)
        print("\n".join(found) or "as good as docs/devices.md says")
        return 1 if found else 0
    for device in devices:
        lists.pop(device, None)
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    page = head + BEGIN + written({**columns, **now}, {**lists, **told}) + END + tail
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
