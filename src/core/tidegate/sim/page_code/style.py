"""The style of the page of a run: light and dark as the reader's system is, and one sheet of paper."""

from __future__ import annotations

from typing import Final

SHEET: Final = r"""
:root {
  --paper: #fbfaf7; --card: #fff; --ink: #1d2125; --soft: #5b6470; --line: #d9d6cf; --tint: #e2eeed;
  --tide: #0b6b70; --bad: #b3261e; --bad-tint: #fdecea; --odd: #8a5300; --odd-tint: #fbf1df;
  --new: #1c6b34; --new-tint: #e5f4e9; --light: 48%; --label: clamp(9rem, 24vw, 26rem);
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --card: #1d2327; --ink: #e8e6e1; --soft: #a3abb3; --line: #363e44; --tint: #1a3437;
    --tide: #62c4c5; --bad: #ff9c92; --bad-tint: #3d1f1d; --odd: #f0bd6a; --odd-tint: #38290f;
    --new: #86d39b; --new-tint: #1a3222; --light: 72%;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
.drawn { display: flex; flex-direction: column; min-height: 100vh; }
header { display: grid; grid-template-columns: 1fr auto; gap: .2rem 2rem; padding: .9rem 1.2rem .7rem; }
h1 { margin: 0 0 .5rem; font-size: clamp(1.25rem, 2.4vw, 1.75rem); line-height: 1.15; letter-spacing: -.015em; font-weight: 700; }
h1::first-letter { text-transform: uppercase; }
h1, dd { max-height: 6rem; overflow: auto; overflow-wrap: anywhere; unicode-bidi: isolate; }
.verdict { margin: 0; color: var(--bad); font-weight: 650; }
.clean .verdict { color: var(--new); }
.facts { display: flex; flex-wrap: wrap; gap: .2rem 1.7rem; margin: 0; grid-column: 1 / -1; }
.facts div { max-width: 34rem; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; }
code, kbd, pre, .value, .path, .key, .on { font-family: var(--mono); font-size: .88em; }
.replay { display: grid; grid-template-columns: minmax(0, auto) auto; gap: .3rem .4rem; align-content: start; justify-items: stretch;
  max-width: 44rem; align-items: center; }
.replay code { padding: .25rem .6rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card);
  overflow-wrap: anywhere; max-height: 4.4rem; overflow: auto; }
.replay #save { grid-column: 2; }
button, select, input { font: inherit; font-size: .88rem; color: var(--ink); background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: .2rem .55rem; }
button, select, .step, .strip { cursor: pointer; }
button:hover:enabled { border-color: var(--tide); }
button:disabled { opacity: .45; cursor: default; }
button[aria-pressed=true] { background: var(--tint); border-color: var(--tide); }
:focus-visible { outline: 2px solid var(--tide); outline-offset: 1px; }
kbd { border: 1px solid var(--line); border-radius: 4px; padding: 0 .3em; background: var(--card); }
noscript pre { padding: 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.undrawn { padding: 0 1rem; color: var(--soft); }
main, .drawn .undrawn { display: none; }
.drawn main { display: flex; flex-direction: column; flex: 1; min-height: 0; }
svg { display: block; overflow: visible; }
.icon { width: 1em; height: 1em; display: inline-block; vertical-align: -.12em; }
.glyph { fill: none; stroke: currentColor; stroke-width: 1.7; stroke-linecap: round; stroke-linejoin: round; }
.soft { color: var(--soft); }

/* The run as a whole. */
.band { border-block: 1px solid var(--line); background: var(--card); padding: .5rem 1.2rem .6rem; }
.controls { display: flex; flex-wrap: wrap; gap: .4rem .7rem; align-items: center; }
.group { display: flex; flex-wrap: wrap; gap: .2rem; }
.controls select { max-width: 8.2rem; }
#query { width: 9rem; }
#by-key { width: 7.5rem; }
#said { color: var(--soft); font-size: .85rem; max-width: 30rem; overflow-wrap: anywhere; }
.controls > button:last-child { margin-left: auto; font-weight: 700; }
.strips { position: relative; display: grid; grid-template-columns: var(--label) minmax(0, 1fr); gap: 1px 0; margin-top: .5rem;
  max-height: 11rem; overflow: hidden auto; align-items: center; }
.track { position: relative; height: 26px; }
.scrubber { position: absolute; inset: 8px 0 0; width: 100%; margin: 0; padding: 0; height: 18px; background: none; border: 0; appearance: none; }
.scrubber::-webkit-slider-runnable-track { height: 3px; background: var(--line); border-radius: 2px; }
.scrubber::-moz-range-track { height: 3px; background: var(--line); border-radius: 2px; }
.scrubber::-webkit-slider-thumb { appearance: none; width: 16px; height: 16px; margin-top: -6.5px; border-radius: 50%; background: var(--tide);
  border: 2px solid var(--card); }
.scrubber::-moz-range-thumb { width: 12px; height: 12px; border-radius: 50%; background: var(--tide); border: 2px solid var(--card); }
.ticks { position: absolute; width: 100%; height: 10px; pointer-events: none; }
.tick.odd { fill: var(--odd); }
.tick.law, .strip .cross { stroke: var(--bad); stroke-width: 2; fill: none; }
.strip .cross { stroke: var(--card); stroke-width: 1.5; pointer-events: none; }
.playhead { position: absolute; top: 20px; bottom: 0; border-left: 2px solid var(--tide); translate: -1px; pointer-events: none; opacity: .75; z-index: 1; }
.strip { width: 100%; height: 14px; }
.strip .holds { fill: color-mix(in oklab, var(--new) 55%, var(--card)); }
.strip .open { fill: var(--line); }
.strip .broken { fill: var(--bad); }
.strip .reached { fill: var(--tide); }
.strip .change { fill: var(--odd); }
.labels { display: flex; min-width: 0; align-items: center; }
.where { font-weight: 650; font-variant-numeric: tabular-nums; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.label { display: flex; gap: .4rem; min-width: 0; flex: 1; border: 0; background: none; padding: 0 .3rem 0 0; text-align: left; line-height: 1.35; align-items: center; }
.label .text { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.label:hover { text-decoration: underline; }
.label.active .text { font-weight: 650; }
.truth { width: 1.1em; flex: none; text-align: center; font-weight: 700; color: var(--soft); }
.truth.holds { color: var(--new); }
.truth.broken { color: var(--bad); }
.truth.reached { color: var(--tide); }
.watched { display: grid; grid-template-columns: minmax(0, 1fr); position: relative; }
.now { font: .78rem/1.2 var(--mono); color: var(--soft); overflow-wrap: anywhere; max-height: 2.4em; overflow: hidden; padding-left: 8px; }
.drop { border: 0; padding: 0 .4rem; background: none; }

/* The lanes. */
.work { display: grid; grid-template-columns: minmax(0, 1fr) minmax(21rem, 33%); flex: 1 1 0; height: 0; min-height: 24rem; }
.lanes { display: flex; flex-direction: column; min-width: 0; min-height: 0; }
.notice { margin: 0; padding: .25rem 1.2rem; background: var(--odd-tint); color: var(--odd); font-size: .88rem; }
.notice:empty { display: none; }
.scroller { overflow: auto; flex: 1; min-height: 0; overscroll-behavior: contain; }
.rows { position: relative; --gutter: 4.2rem; }
.canvas { position: absolute; left: var(--gutter); top: 0; width: var(--room); height: 100%; pointer-events: none; z-index: 1; }
.names { position: sticky; top: 0; z-index: 3; height: 3.4rem; margin-left: 4.2rem; background: var(--paper); border-bottom: 1px solid var(--line); }
.names::before { content: ""; position: absolute; right: 100%; width: 4.2rem; top: 0; bottom: -1px; background: var(--paper); border-bottom: 1px solid var(--line); }
.name { position: absolute; bottom: 2px; border: 0; background: none; padding: 0 2px; text-align: center; line-height: 1.2; touch-action: none; cursor: grab;
  color: color-mix(in oklab, var(--tone) 70%, var(--ink)); }
.name .text { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; font-weight: 650; overflow: hidden; overflow-wrap: anywhere; }
.name.store .text { font-weight: 400; }
.says { display: block; font-size: .74rem; color: var(--soft); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; min-height: 1.2em; }
.says.loud { color: var(--ink); font-weight: 650; }
.narrow .names { height: 5.8rem; }
.narrow .name { height: 5.5rem; font-size: .8rem; }
.narrow .name .text { display: block; white-space: nowrap; writing-mode: vertical-rl; rotate: 180deg; max-height: 5.4rem; margin: auto; }
.narrow .says { display: none; }
.chip { position: relative; float: right; margin: .3rem .3rem 0 0; font-size: .78rem; }
.step { position: absolute; left: 0; right: 0; display: grid; grid-template-columns: var(--gutter) var(--room) minmax(0, 1fr); align-items: center;
  border-radius: 6px; }
.step:hover { background: color-mix(in srgb, var(--tint) 50%, transparent); }
.step[aria-selected=true] { background: var(--tint); box-shadow: inset 4px 0 var(--tide); }
.number { padding-right: .7rem; text-align: right; color: var(--soft); font-variant-numeric: tabular-nums; line-height: 1.2; }
.number small { display: block; font-size: .7rem; white-space: nowrap; }
.hit .number { color: var(--ink); font-weight: 700; }
.step.hit .number::before { content: "\25b8 "; }
.card { grid-column: 3; min-width: 0; padding: 0 .6rem; unicode-bidi: isolate; }
.line { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.who { margin-right: .5em; color: color-mix(in oklab, var(--tone) 70%, var(--ink)); }
.more { font-size: .78rem; color: var(--soft); font-family: var(--mono); }
.more > * { margin-right: .9em; }
.more > .mark { max-width: 100%; overflow: hidden; text-overflow: ellipsis; vertical-align: bottom; }
.news.add, .news.replace { color: var(--new); }
.news.remove { color: var(--bad); }
.mark { display: inline-block; padding: 0 .4rem; border-radius: 4px; border: 1px solid; font: 650 .76rem/1.4 system-ui, sans-serif;
  color: var(--odd); background: var(--odd-tint); overflow-wrap: anywhere; }
.mark.law { color: var(--bad); background: var(--bad-tint); }
.mark.goal { color: var(--tide); background: var(--tint); }
mark { background: var(--odd); color: var(--card); border-radius: 2px; }
.dim { opacity: .3; }
.rail { fill: none; stroke: color-mix(in oklab, var(--tone) 55%, var(--paper)); stroke-width: 2; }
.rail.loud { stroke-width: 7; stroke: color-mix(in oklab, var(--tone) 75%, var(--paper)); }
.rail.dead { stroke: var(--soft); stroke-dasharray: 2 5; }
.rail.over { stroke-width: 1; stroke: var(--line); }
.rail.store { stroke-width: 6; stroke: color-mix(in oklab, var(--line) 55%, var(--paper)); }
.arrow { fill: none; stroke: var(--tone); stroke-width: 1.6; }
.arrow.faint { stroke-dasharray: 4 3; }
.head { fill: var(--tone); }
.sign { stroke: var(--odd); stroke-width: 3; }
.node { fill: var(--card); stroke: var(--tone); stroke-width: 2; }
.canvas { color: var(--ink); }
.odd .node { fill: var(--odd-tint); stroke: var(--odd); }
.broken .node { fill: var(--bad); stroke: var(--bad); }
.broken .node + .glyph { stroke: var(--card); stroke-width: 2.5; }
.because { fill: none; stroke: var(--tide); stroke-width: 2; stroke-dasharray: 1 4; stroke-linecap: round; }
path.gap { stroke: var(--line); }
path.gap.fold { stroke-dasharray: 6 4; stroke: var(--soft); }
text.gap, .token { font: 11px system-ui, sans-serif; fill: var(--soft); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.token { font-weight: 650; fill: var(--ink); font-size: 10px; }

/* The step that is looked at, and two runs side by side. */
.side { border-left: 1px solid var(--line); background: var(--card); display: flex; flex-direction: column; min-height: 0; }
.tabs { display: flex; padding: .3rem .8rem 0; gap: .2rem; border-bottom: 1px solid var(--line); }
.tabs button { border: 0; border-bottom: 3px solid transparent; border-radius: 0; background: none; }
.tabs [aria-selected=true] { border-color: var(--tide); font-weight: 650; }
.detail, .compare { padding: .6rem 1rem 1.4rem; overflow: auto; flex: 1; min-height: 0; overflow-wrap: anywhere; }
h2 { margin: 0; font-size: 1.05rem; }
h3 { margin: 1rem 0 .25rem; font-size: .86rem; color: var(--soft); font-weight: 650; }
h3 button { margin-left: .3rem; padding: 0 .4rem; font-size: .8rem; }
.said { margin: .3rem 0 0; unicode-bidi: isolate; }
.heard { color: var(--soft); }
.said + .mark { margin-top: .4rem; }
.detail > .mark { margin-right: .4rem; }
.patch, .plain { list-style: none; margin: 0; padding: 0; }
.patch li { padding: .25rem .5rem; margin: .2rem 0; border-left: 4px solid var(--tide); border-radius: 0 5px 5px 0;
  background: color-mix(in srgb, var(--tint) 60%, transparent); }
.patch .add { border-color: var(--new); background: var(--new-tint); }
.patch .remove { border-color: var(--bad); background: var(--bad-tint); }
.patch .routine { background: none; border-left: 1px solid var(--line); color: var(--soft); padding-block: .05rem; }
.op { font-weight: 650; font-size: .8rem; margin-right: .5rem; }
.value { unicode-bidi: isolate; white-space: pre-wrap; }
.old { text-decoration: line-through; color: var(--soft); }
.fold { padding: 0 .4rem; font-size: .78rem; margin-left: .3rem; }
.pin { border: 0; padding: 0 .25rem; background: none; color: var(--soft); opacity: .55; font-size: .8rem; }
.pin:hover, .pin:focus-visible, .pin[aria-pressed=true] { opacity: 1; color: var(--tide); }
.tree details, .tree .leaf { margin-left: 1rem; }
.tree > details, .tree > .leaf { margin-left: 0; }
.tree summary { cursor: pointer; }
.tree .leaf { padding-left: 1rem; }
.hint, .same { color: var(--soft); font-size: .8rem; }
.tree .sign { font-weight: 700; font-family: var(--mono); padding-right: .35rem; }
.tree .add, .tree .replace { background: var(--new-tint); border-radius: 4px; }
.tree .remove { background: var(--bad-tint); border-radius: 4px; }
.key { color: var(--tide); }
.plain li { padding: .15rem 0 .15rem .5rem; border-left: 2px solid var(--line); margin: .15rem 0; }
.on, .src { color: var(--soft); font-size: .8rem; }
.plain .taken { border-color: var(--tide); background: var(--tint); }
.links button { text-align: left; border: 0; background: none; padding: 0; color: var(--tide); text-decoration: underline; }
.compare table { border-collapse: collapse; width: 100%; font-size: .86rem; table-layout: fixed; margin: .5rem 0; }
.compare td, .compare th { vertical-align: top; text-align: left; padding: .25rem .4rem; border: 1px solid var(--line); }
.compare td button { padding: 0 .35rem; margin-right: .4rem; }
.differs td { background: var(--odd-tint); }
.help { max-width: 46rem; border: 1px solid var(--line); border-radius: 10px; background: var(--card); color: var(--ink); }
.help::backdrop { background: #0008; }
.signs { list-style: none; padding: 0; columns: 7.5rem; }
.keys { columns: 20rem; }
.keys div { display: flex; gap: .6rem; break-inside: avoid; padding: .1rem 0; }
.keys dt { min-width: 5.5rem; }
@media screen and (max-width: 56rem) {
  header { grid-template-columns: minmax(0, 1fr); }
  .facts { flex-wrap: nowrap; overflow-x: auto; white-space: nowrap; }
  .work { grid-template-columns: minmax(0, 1fr); height: auto; flex: none; }
  .scroller { flex: none; height: 56vh; }
  .side { border-left: 0; border-top: 2px solid var(--tide); }
  .rows { --gutter: 3.2rem; }
  .names { margin-left: 3.2rem; }
}
@media print {
  @page { margin: 11mm; }
  :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --tint: #eee; --tide: #0b6b70; --bad: #a11; --bad-tint: #fff;
    --odd: #744700; --odd-tint: #fff; --new: #1c6b34; --new-tint: #fff; --light: 45%; --label: 15rem; }
  html { font-size: 9pt; }
  body { font-size: 8pt; line-height: 1.25; }
  .drawn { display: block; min-height: 0; }
  header, .band { padding: 0 0 .3rem; }
  .strips { grid-template-columns: var(--label) 515px; max-height: none; }
  .controls, .replay button, .pin, .tabs, h3 button, .chip, .scrubber { display: none; }
  .work { display: grid; grid-template-columns: minmax(0, 1fr) 32%; height: auto; min-height: 0; align-items: start; }
  .scroller { overflow: visible; }
  .names { position: relative; }
  .side { border-left: 1px solid var(--line); }
  .side { display: block; }
  .detail, .compare { max-height: 165mm; overflow: hidden; padding: 0 0 0 .6rem; }
  .step[aria-selected=true] { box-shadow: none; outline: 1px solid var(--tide); }
  .line { font-size: 7.5pt; line-height: 1.15; }
  .more, .mark { font-size: 6.5pt; line-height: 1.1; }
}
"""
