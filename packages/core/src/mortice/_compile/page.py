"""Reports as one HTML page, with nothing outside of it: graphs drawn, reasons, guards, times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mortice.fx import GraphModule
from mortice.fx.drawing import draw

from .explain import Part, Report, SegmentReport, times

#: Larger graphs are shown as code alone: nobody reads a picture of more boxes.
DRAWN_NODES = 400

_STYLE = """
:root { color-scheme: light dark; --line: #d1d5db; --soft: #f3f4f6; --text: #111827;
  --dim: #6b7280; --accent: #2563eb; --good: #15803d; --bad: #b45309; --page: #ffffff }
@media (prefers-color-scheme: dark) { :root { --line: #374151; --soft: #1f2937; --text: #e5e7eb;
  --dim: #9ca3af; --accent: #60a5fa; --good: #4ade80; --bad: #fbbf24; --page: #111827 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 0 .25rem } h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.25rem 0 .35rem }
p { margin: .25rem 0 .75rem } .dim { color: var(--dim) }
code, pre { font: 12.5px/1.45 ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace }
h2 code { font-size: 1.1rem }
a { color: var(--accent) }
pre { background: var(--soft); padding: .75rem; overflow: auto; border-radius: .4rem; margin: .5rem 0 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 }
th, td { text-align: left; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top } th { color: var(--dim); font-weight: 600 } td.n, th.n { text-align: right }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .6rem 0; padding: 0 .9rem }
details[open] { padding-bottom: .75rem } summary { cursor: pointer; padding: .55rem 0 }
details details { border-style: dashed }
.picture { overflow: auto; background: #ffffff; border-radius: .4rem; padding: .5rem;
  max-height: 40rem; border: 1px solid var(--line) }
.bar { display: inline-block; height: .6rem; background: var(--accent); border-radius: .2rem;
  min-width: 2px; vertical-align: middle }
.replay { color: var(--good) } .always { color: var(--bad) } ul { margin: .25rem 0; padding-left: 1.2rem }
"""


def page(reports: Sequence[Report], title: str) -> str:
    """The reports as an HTML document."""
    body = [f"<h1>{escape(title)}</h1>", *_overview(reports)]
    for i, report in enumerate(reports):
        body += _function(report, i)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _overview(reports: Sequence[Report]) -> Iterable[str]:
    if not reports:
        yield "<p>No function was compiled: nothing called <code>mortice.compile</code>.</p>"
        return
    yield "<table><tr><th>function</th><th>backend</th><th>verdict</th>"
    yield '<th class="n">graphs</th><th class="n">operators</th><th class="n">breaks</th>'
    yield '<th class="n">captured again</th><th class="n">compiling</th></tr>'
    for i, report in enumerate(reports):
        total = sum(s.seconds["total"] for s in report.segments)
        cells = (
            report.graph_count, report.op_count, report.graph_break_count,
            len(report.recompilations), f"{total * 1e3:.1f} ms",
        )  # fmt: skip
        numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
        yield (
            f'<tr><td><a href="#f{i}"><code>{escape(report.name)}</code></a></td>'
            f"<td>{escape(report.backend)}</td><td>{_verdict(report)}</td>{numbers}</tr>"
        )
    yield "</table>"


def _verdict(report: Report) -> str:
    kind = {"replay": "replay", "always run": "always"}.get(report.verdict, "dim")
    return f'<span class="{kind}">{escape(report.verdict)}</span>'


def _function(report: Report, number: int) -> Iterable[str]:
    yield f'<h2 id="f{number}"><code>{escape(report.name)}</code></h2>'
    calls = ", ".join(f"{count} {kind}" for kind, count in report.calls.items())
    yield f"<p>Verdict: {_verdict(report)}. Calls: {calls}.</p>"
    yield from _list("Why calls are not replayed", report.reasons)
    yield from _list("Breaks: why graphs ended before the last observed call did", report.breaks)
    yield from _list("Ends that fullgraph allows", report.ends)
    yield from _list("Why places were captured again", report.recompilations)
    yield from _list("Guards that failed", report.misses)
    if report.guards:
        yield f"<details><summary>{len(report.guards)} guards of replayed calls</summary><ul>"
        yield from (f"<li><code>{escape(guard)}</code></li>" for guard in report.guards)
        yield "</ul></details>"
    yield "<h3>Graphs</h3>"
    if not report.segments:
        yield "<p class='dim'>None: it was not called, called no operator, or is part of another's graphs.</p>"
    for segment in report.segments:
        yield from _segment(segment)


def _list(title: str, texts: Sequence[str]) -> Iterable[str]:
    if texts:
        yield f"<h3>{title}</h3><ul>"
        yield from (f"<li>{escape(text)}</li>" for text in texts)
        yield "</ul>"


def _segment(segment: SegmentReport) -> Iterable[str]:
    total = segment.seconds["total"]
    state = "" if segment.compiled else ", runs operator by operator"
    yield (
        f"<details><summary><strong>{escape(segment.name)}</strong>: {segment.nodes} operators, "
        f"ran {times(segment.hits)}, {total * 1e3:.1f} ms to make{state} "
        f'<span class="dim">{escape(segment.line)}</span></summary>'
    )
    if segment.reason:
        yield f"<p>Another graph of this place: {escape(segment.reason)}</p>"
    yield from _list("Holds for", segment.guards)
    yield "<h3>Time</h3><table>"
    longest = max(segment.seconds.values()) or 1.0
    for stage, spent in segment.seconds.items():
        width = 100 * spent / longest
        yield (
            f'<tr><td style="width: 14rem">{escape(stage)}</td><td class="n" style="width: 7rem">'
            f'{spent * 1e3:.2f} ms</td><td><span class="bar" style="width: {width:.1f}%"></span>'
            "</td></tr>"
        )
    yield "</table><h3>As captured</h3>"
    yield from _graph(segment.graph)
    for part in segment.parts:
        yield from _part(part)
    yield "</details>"


def _part(part: Part) -> Iterable[str]:
    calls = sum(n.op == "call_function" for n in part.graph.graph.nodes)
    yield f"<details><summary>{escape(part.name)}, as compiled: {calls} operators</summary>"
    yield from _graph(part.graph)
    for title, text in (("Fusion", part.fusion), ("The backend's code", part.output_code)):
        if text:
            yield f"<h3>{title}</h3><pre>{escape(text)}</pre>"
    yield "</details>"


def _graph(module: GraphModule) -> Iterable[str]:
    count = len(module.graph.nodes)
    if count <= DRAWN_NODES:
        yield f'<div class="picture">{draw(module)}</div>'
    else:
        yield f'<p class="dim">{count} nodes: too many to draw.</p>'
    yield f"<details><summary>code</summary><pre>{escape(module.code)}</pre></details>"
