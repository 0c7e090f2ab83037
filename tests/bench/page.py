"""Writes the page of results from the JSON lines that measure.py collected: tables between the page's markers, and a plot.

    python3 tests/bench/page.py            the page again, from the results that are there

Every bar that a result is held to stands in BARS.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable
from xml.sax.saxutils import escape

BEGIN, END = "<!-- results: written by tests/bench/run -->", "<!-- end of results -->"
PLOT = "results.svg"

# More load than this before measuring is other work.
QUIET = 0.5


@dataclass(frozen=True)
class Bar:
    """One figure, and what it must be."""

    name: str
    what: str
    figure: Callable[[dict], float]
    limit: float
    at_least: bool = True
    kind: str = "peer"

    def passes(self, figure):
        return figure >= self.limit if self.at_least else figure <= self.limit


def ratio(result):
    return result["ratio"]


def times_limit(result):
    return result["limits"]["times_limit"]


def times_memory(result):
    return result["median_ms"] / result["limits"]["memory_ms"]


BARS = [
    Bar("faiss_256", "{probes} probes, faiss", ratio, 8),
    Bar("faiss_4096", "{probes} probes, faiss", ratio, 3),
    Bar("faiss_1", "{probes} probe, faiss", ratio, 6),
    Bar("faiss_16", "{probes} probes, faiss", ratio, 8),
    Bar("faiss_256_wide", "{probes} probes, dim {dim}, {rows} rows, faiss", ratio, 5),
    Bar("numpy_256", "{probes} probes, numpy", ratio, 8),
    Bar("usearch_256", "{probes} probes, usearch", ratio, 15),
    Bar("real_dlib128", "{probes} probes, real faces (dlib), faiss", ratio, 5),
    Bar("real_mfn128", "{probes} probes, real faces (MobileFaceNet), faiss", ratio, 5),
    Bar("real_edge512", "{probes} probes, real faces (EdgeFace, dim 512), faiss", ratio, 5),
    Bar("limits_256", "{probes} probes, against the larger limit", times_limit, 2.5, False, "limit"),
    Bar("limits_1", "{probes} probe, against the larger limit", times_limit, 2.5, False, "limit"),
    Bar("recognize_wide", "Recognize, dim {dim}, {rows} rows, against memory", times_memory, 2, False, "limit"),
    Bar("growth", "time of {grown_rows} rows by that of {rows}, 16 probes", ratio, 10.5, False, "other"),
    Bar("callers", "replies of {callers} callers by those of one", ratio, 8, True, "other"),
    Bar("callers", "p99 by p50 of {callers} callers", lambda result: result["p99_by_p50"], 4, False, "other"),
    Bar("memory", "memory beyond the f32 rows, by them, {rows} rows", lambda result: result["beyond"], 0.4, False, "other"),
]

HARD = {
    "hard_equal": "rows all equal",
    "hard_close": "rows 1e-7 apart",
    "hard_one_identity": "all rows of one identity, Recognize",
}


def read(path):
    """Results by name; none where there is no file."""
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text().splitlines() if line.strip())
    return {line["name"]: line for line in lines}


def thousands(number):
    return f"{number:,}".replace(",", " ")


def label(bar, result):
    """What was measured, in the result's own numbers."""
    shown = {key: thousands(value) if isinstance(value, int) else value for key, value in result.items()}
    return bar.what.format_map(shown)


def figures(results, kind):
    """(bar, result, figure) of what was measured."""
    held = ((bar, results[bar.name]["result"]) for bar in BARS if bar.kind == kind and bar.name in results)
    return [(bar, result, bar.figure(result)) for bar, result in held]


def table(header, rows):
    align = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [header, align, *rows])


def verdict(bar, figure):
    sign = ">=" if bar.at_least else "<="
    return f"{sign} {bar.limit:g}", "pass" if bar.passes(figure) else "**short**"


def exact(result):
    """How many positions of the answers were compared with f64, and how many are equal."""
    if "exact_positions" in result:
        return result["exact_positions"], result["of"]
    checked = result.get("checked") or {"equal": 0, "positions": 0}
    return checked["equal"], checked["positions"]


def peers_table(results):
    rows = []
    for bar, result, figure in figures(results, "peer"):
        equal, of = exact(result)
        rows.append([label(bar, result), f"{result['lookalike_ms']:.2f}", f"{result['peer_ms']:.2f}", f"{figure:.2f}",
                     *verdict(bar, figure), f"{equal} of {of}"])
    return table(["work, peer", "ours, ms", "peer's, ms", "ratio", "bar", "", "equal to f64"], rows)


def limits_table(results):
    rows = []
    for bar, result, figure in figures(results, "limit"):
        limits, (equal, of) = result["limits"], exact(result)
        rows.append([label(bar, result), f"{result['median_ms']:.2f}", f"{limits['memory_ms']:.2f}",
                     f"{limits['arithmetic_ms']:.2f}", f"{figure:.2f}", *verdict(bar, figure), f"{equal} of {of}"])
    return table(["work", "median, ms", "memory's limit, ms", "arithmetic's, ms", "times", "bar", "", "equal to f64"], rows)


def other_table(results):
    rows = [[label(bar, result), f"{figure:.2f}", *verdict(bar, figure)] for bar, result, figure in figures(results, "other")]
    return table(["figure", "", "bar", ""], rows)


def hard_table(results):
    rows = []
    for name, what in HARD.items():
        if name in results:
            result = results[name]["result"]
            equal, of = exact(result)
            rows.append([f"{what}: {thousands(result['rows'])} rows, {result['probes']} probes", f"{result['median_ms']:.2f}",
                         result["uncertified"], f"{equal} of {of}"])
    return table(["rows", "median, ms", "uncertified scans", "equal to f64"], rows)


def callers_line(results):
    if "callers" not in results:
        return ""
    result = results["callers"]["result"]

    def kind(name):
        figures = result[name]
        return f"{figures['per_s']:.0f} replies a second (p50 {figures['p50_ms']:.2f} ms, p99 {figures['p99_ms']:.2f} ms)"

    return (f"Unary `Recognize` on {thousands(result['rows'])} rows of dim {result['dim']}, server and callers sharing the machine: one caller at a time got "
            f"{kind('one')}, {result['callers']} at once {kind('many')}. "
            f"{result['differing']} of {result['probes']} answers differed from those to one alone.")


def machine_lines(results):
    machine = results["machine"]["result"]
    dates = sorted(one["at"] for one in results.values() if "at" in one)
    when = f"{dates[0]} to {dates[-1]} UTC" if dates else "never"
    lines = [f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, {machine['path']}; measured {when}. "
             "Peers: " + ", ".join(f"{name} {version}" for name, version in machine["peers"].items()) + "."]
    measured = [results[name]["result"]["limits"] for name in ("limits_256", "limits_1", "recognize_wide") if name in results]
    if measured:
        best = max(measured, key=lambda limits: limits["memory_gb_per_s"]["best"])
        int8, f32 = (max((one[kind] for one in measured), key=lambda peak: peak["gops"]) for kind in ("int8", "f32"))
        lines.append(f"Memory is read at {best['memory_gb_per_s']['best']:.1f} GB/s; registers do {int8['gops']:.0f} GOP/s of int8 "
                     f"({int8['level']}) and {f32['gops']:.0f} GFLOP/s of f32 ({f32['level']}).")
    if machine["load"] > QUIET:
        lines.append(f"**The machine was busy with other things (load {machine['load']:.1f}): peers that spin while they wait suffer most from that.**")
    if machine["quick"]:
        lines.append("**A quick run, to see whether measuring works: fewer rows and rounds than the bars are meant for.**")
    return "\n".join(lines)


def summary(results):
    held = [bar.passes(bar.figure(results[bar.name]["result"])) for bar in BARS if bar.name in results]
    equal, of = (sum(part) for part in zip(*(exact(one["result"]) for name, one in results.items() if name != "machine"), (0, 0)))
    return f"{sum(held)} of {len(BARS)} bars hold ({len(BARS) - len(held)} not measured). {equal} of {of} positions that were checked equal `f64`'s."


def section(results):
    """All that stands between the markers."""
    parts = [machine_lines(results), summary(results), f"![Ratios to peers, and distance to the machine's limits]({PLOT})",
             "### Against other libraries", peers_table(results), "### Against the machine", limits_table(results),
             "### Growth, callers, memory", other_table(results), callers_line(results),
             "### Rows that are hard to tell apart", hard_table(results)]
    return "\n\n".join(part for part in parts if part)


# The plot. All in one file, as text: colours follow the reader's scheme.
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .small { font-size: 11px; fill: #59636e }
  .head { font-weight: 600 }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .bar { stroke: #cf222e; stroke-width: 2 }
  .pass { fill: #2f81c7 }
  .short { fill: #bf8700 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #3d444d } .bar { stroke: #ff7b72 }
    .pass { fill: #4493f8 } .short { fill: #d29922 }
  }
"""
LEFT, RIGHT, STEP, WIDTH = 400, 70, 26, 900


@dataclass(frozen=True)
class Scale:
    """From figures to places across the plot, logarithmic or not."""

    least: float
    most: float
    log: bool

    def __call__(self, figure):
        inner = WIDTH - LEFT - RIGHT
        clipped = min(max(figure, self.least), self.most)
        if self.log:
            return LEFT + inner * math.log(clipped / self.least) / math.log(self.most / self.least)
        return LEFT + inner * (clipped - self.least) / (self.most - self.least)


def panel(top, head, held, scale, ticks):
    """One panel's elements, and where it ends."""
    bottom = top + 24 + STEP * len(held)
    parts = [f'<text class="head" x="8" y="{top + 14}">{escape(head)}</text>']
    for tick in ticks:
        x = f"{scale(tick):.1f}"
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{top + 24}" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{x}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>')
    for place, (bar, result, figure) in enumerate(held):
        y, start, end = top + 28 + STEP * place, scale(scale.least), scale(figure)
        state = "pass" if bar.passes(figure) else "short"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(label(bar, result))}</text>')
        parts.append(f'<rect class="{state}" x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="18" rx="2"/>')
        limit = f"{scale(bar.limit):.1f}"
        parts.append(f'<line class="bar" x1="{limit}" x2="{limit}" y1="{y - 2}" y2="{y + 20}"/>')
        parts.append(f'<text x="{max(end, scale(bar.limit)) + 6:.1f}" y="{y + 13}">{figure:.1f}</text>')
    return parts, bottom + 30


def plot(results):
    """The plot as SVG."""
    peers, limits = figures(results, "peer"), figures(results, "limit")
    most = max([100.0, *(figure for *_, figure in peers)])
    first, top = panel(8, "Times faster than peers (log scale; red: the bar)", peers, Scale(0.5, most, True), [0.5, 1, 2, 5, 10, 20, 50, 100])
    most = max([5.0, *(figure for *_, figure in limits)])
    step = max(1, round(most / 8))
    ticks = range(0, math.floor(most) + 1, step)
    second, end = panel(top + 8, "Times the machine's limit (1 is the limit; red: the bar)", limits, Scale(0, most, False), ticks)
    inner = "\n".join(first + second)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {end}" width="{WIDTH}" height="{end}" role="img" '
            f'aria-label="Ratios to peers, and distance to the limits">\n<style>{STYLE}</style>\n{inner}\n</svg>\n')


def write(results_path, page_path):
    """Puts the results between the page's markers, and the plot beside it."""
    results = read(results_path)
    text = page_path.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page_path.write_text(f"{before}{BEGIN}\n\n{section(results)}\n\n{END}{after}")
    page_path.with_name(PLOT).write_text(plot(results))


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    write(here / "results.jsonl", here / "README.md")
