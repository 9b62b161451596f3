"""The style sheet of a report, for screens dark or light, wide or narrow, and for print."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --soft: #444; --line: #949494; --thin: #ddd;
  --good: #00664b; --good-back: #eef8f4; --doubt: #8a5a00; --doubt-back: #fdf6e7; --bad: #a83f00; --bad-back: #fdf0ea;
  --link: #0b57a4; --window: #f0f0f0; --c0: #0072b2; --c1: #c44e00; --c2: #007a59; --c3: #a8467f; --c4: #1a1a1a;
  --c5: #8f6a00; --c6: #6b4fa0; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #16191d; --ink: #e8e8e8; --soft: #b8bcc2; --line: #7a8088; --thin: #3a3f46; --good: #4fc7a0;
    --good-back: #10261f; --doubt: #e0a94a; --doubt-back: #2a2110; --bad: #ff9a66; --bad-back: #2e1a12;
    --link: #8ec5ff; --window: #22272e; --c0: #56b4e9; --c1: #ff9a66; --c2: #3fc79a; --c3: #e79bc6; --c4: #f0f0f0;
    --c5: #e6b84d; --c6: #b9a5ff; }
}
body { margin: 0 auto; max-width: 66rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, "Segoe UI", "DejaVu Sans", Arial, sans-serif; }
h1 { margin: 0; font-size: 1.7rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 1.8rem 0 .6rem; padding-bottom: .2rem; border-bottom: 1px solid var(--line); font-size: 1.25rem; }
p { overflow-wrap: break-word; }
.subtitle { margin: .2rem 0 1rem; color: var(--soft); overflow-wrap: anywhere; }
.verdict { margin: 1rem 0; padding: .7rem 1rem; border: 1px solid; border-left-width: .6rem; font-size: 1.2rem;
  font-weight: 600; }
.good { border-color: var(--good); background: var(--good-back); }
.doubtful { border-color: var(--doubt); background: var(--doubt-back); }
.bad { border-color: var(--bad); background: var(--bad-back); }
a { color: var(--link); }
.listing { margin: .6rem 0 .2rem; font-weight: 600; }
ul { margin: 0 0 .8rem; padding-left: 1.4rem; }
li { overflow-wrap: anywhere; }
.scroll { margin: 1rem 0; overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; }
caption { padding: .2rem 0; text-align: left; font-weight: 600; }
th, td { padding: .22rem .5rem; border-bottom: 1px solid var(--thin); text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
tbody th { min-width: 7rem; font-weight: 500; }
tbody th.figure { min-width: 0; }
td { min-width: 5.5rem; overflow-wrap: anywhere; }
td.figure { min-width: 0; }
.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
thead .figure { white-space: normal; }
.met { color: var(--good); font-weight: 600; }
.missed { color: var(--bad); font-weight: 600; }
.bar { width: 12rem; height: 1rem; margin-right: 1rem; vertical-align: middle; overflow: visible; stroke: var(--soft);
  fill: var(--soft); }
.bar.better { stroke: var(--good); fill: var(--good); }
.bar.worse { stroke: var(--bad); fill: var(--bad); }
a.code { font-size: .8rem; white-space: nowrap; }
dt { font-weight: 600; }
dd { margin: 0 0 .6rem; }
figure { margin: 1rem 0; }
figcaption { margin-bottom: .3rem; font-weight: 600; font-size: .9rem; }
details { margin: .3rem 0; font-size: .9rem; }
summary { cursor: pointer; color: var(--soft); }
.panels { display: grid; gap: .6rem 1rem; grid-template-columns: minmax(0, 1fr); }
.across-2 { grid-template-columns: repeat(2, minmax(0, 1fr)); }
.across-3 { grid-template-columns: repeat(3, minmax(0, 1fr)); }
.panel .title, .axis { margin: 0; font-size: .8rem; }
.panel .title { font-weight: 600; }
.unit, .axis { color: var(--soft); font-weight: 400; }
.axis { text-align: center; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; margin: 0; padding: 0; font-size: .8rem;
  list-style: none; }
.key { width: 2rem; height: .8rem; margin-right: .4rem; vertical-align: middle; overflow: visible; }
.markers { position: absolute; width: 0; height: 0; }
.plot { display: block; width: calc(100% - 4.6rem); height: 8.5rem; margin: .7rem .7rem 1.6rem 3.9rem;
  overflow: visible; font-size: .75rem; }
.across-1 .plot, .across-2 .plot { margin-top: 1.2rem; }
.alone .plot { height: 15rem; }
.plot text { fill: var(--soft); stroke: none; }
.plot svg { overflow: visible; }
.grid { stroke: var(--thin); stroke-width: 1; }
.edge { stroke: var(--soft); stroke-width: 1; }
.window { fill: var(--window); }
.limit { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 8 3; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; vector-effect: non-scaling-stroke; }
use:not(.hollow) { stroke: none; }
use.hollow { fill: var(--paper); stroke-width: 1.4; }
.d1 { stroke-dasharray: 7 3; }
.d2 { stroke-dasharray: 2 2.5; }
.d3 { stroke-dasharray: 8 3 2 3; }
.c0 { stroke: var(--c0); fill: var(--c0); }
.c1 { stroke: var(--c1); fill: var(--c1); }
.c2 { stroke: var(--c2); fill: var(--c2); }
.c3 { stroke: var(--c3); fill: var(--c3); }
.c4 { stroke: var(--c4); fill: var(--c4); }
.c5 { stroke: var(--c5); fill: var(--c5); }
.c6 { stroke: var(--c6); fill: var(--c6); }
.line.line { fill: none; }
@media screen and (max-width: 44rem) {
  body { padding: 1rem; }
  .across-2, .across-3 { grid-template-columns: minmax(0, 1fr); }
  .second { display: none; }
  tbody th { min-width: 6rem; overflow-wrap: anywhere; }
}
@page { margin: 15mm; }
@media print {
  html { font-size: 9pt; }
  body { max-width: none; padding: 0; }
  h2 { margin-top: 1.4rem; }
  h2, h2 + p, figcaption, .legend { break-after: avoid; }
  table { font-size: .875rem; }
  th, td { padding: .12rem .35rem; }
  figure, p, tr, .short, .verdict, .panel { break-inside: avoid; }
  .listing, caption, thead, tbody tr:first-child { break-after: avoid; }
  thead { display: table-header-group; }
  .scroll { overflow: visible; }
  details { display: none; }
  .verdict, .window { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
