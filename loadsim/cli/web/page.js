"use strict";
// Shows the state that the server sends, and asks for the next one. Texts of servers are text nodes, never markup.

const RETRY_MS = 2000, PATIENCE_MS = 25000, UNITS = 1000, COLUMN = {};
const CHARTS = [
  ["Tasks", "per second", [["done", "done_per_s"], ["failed", "failed_per_s"]]],
  ["Service times, about", "ms", [["median", "p50_ms"], ["95th", "p95_ms"], ["99th percentile", "p99_ms"]]],
  ["Late starts of tasks, mean", "ms",
    [["user busy", "late_busy_ms"], ["session down", "late_down_ms"], ["generator", "late_generator_ms"]]],
  ["Lag of the event loop", "ms", [["99th percentile", "lag_p99_ms"], ["largest", "lag_max_ms"]]],
  ["Users on", "", [["users", "users_on"]]],
  ["Busiest engine", "share of a core", [["CPU", "cpu_share"]]],
];  // each with the factor from a column to the unit, 1 unless given
const COLOURS = 7, DASHES = 4;  // of lines in the style sheet
const LAST = 0.97;  // a tick beyond this share of the axis is at its edge
const SIGNS = { good: "\u2713", doubtful: "!", bad: "\u00d7" };

const token = location.hash.slice(1), own = Math.random().toString(36).slice(2) + "0";
const byId = (id) => document.getElementById(id);
let version = -1, series = { run: -1, generation: -1, rows: [] }, newsAt = null, over = false, awaited = null;

// --- elements

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function drawing(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function show(id, text) {
  const place = byId(id);
  if (place.textContent !== text) place.textContent = text;
}

function list(id, texts, kind) {
  byId(id).replaceChildren(...texts.map((text) => element("li", text, kind)));
}

function table(id, caption, columns, rows, kinds) {
  const head = element("tr");
  head.append(...columns.map((title, at) => scoped("th", "col", title, kinds[at])));
  head.setAttribute("role", "row");
  const body = rows.map((row) => {
    const line = element("tr");
    line.setAttribute("role", "row");
    line.append(...row.map((text, at) => at ? cell(text, kinds[at], columns[at]) : scoped("th", "row", text)));
    return line;
  });
  const [top, rest] = [element("thead"), element("tbody")];
  top.append(head);
  rest.append(...body);
  for (const group of [top, rest]) group.setAttribute("role", "rowgroup");
  byId(id).setAttribute("role", "table");
  byId(id).replaceChildren(element("caption", caption), top, rest);
}

function scoped(name, scope, text, kind) {
  const made = element(name, text, kind);
  made.scope = scope;
  made.setAttribute("role", scope === "col" ? "columnheader" : "rowheader");
  return made;
}

function cell(text, kind, title) {
  const made = element("td", text, text === "would be missed" ? "missed" : kind);
  made.dataset.label = title;
  made.setAttribute("role", "cell");
  return made;
}

// --- charts

function stepOf(most, parts) {
  const rough = most / parts, power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((each) => each * power >= rough * 0.999);
}

function timeStepOf(length) {
  const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];
  return steps.find((each) => length / each <= 6) ?? stepOf(length / 86400, 6) * 86400;
}

function clock(seconds) {
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.round(seconds % 60)];
  if (hours) return `${hours}:${String(minutes).padStart(2, "0")} h`;
  return minutes ? `${minutes}:${String(rest).padStart(2, "0")} min` : `${rest} s`;
}

function figure(value) {
  if (value === null) return "\u2013";
  if (Math.abs(value) >= 1e15) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) < 1000 ? 3 : 6 });
}

// A time with its unit, as `duration` of the answer.
function duration(value) {
  const digits = (number, decimals) => number.toLocaleString("en", { minimumFractionDigits: decimals,
    maximumFractionDigits: decimals });
  if (value === null) return figure(value);
  if (Math.round(value) >= 10000) return `${digits(value / 1000, Math.round(value / 100) < 1000 ? 1 : 0)} s`;
  return `${digits(value, Math.round(value * 10) < 1000 ? 1 : 0)} ms`;
}

function percent(share) { return `${Math.round(share * 10000) / 100}%`; }

function chart([title, unit, lines], rows, endS, windowS) {
  const values = lines.map(([, column, factor = 1]) => rows.map((row) => {
    const value = row[COLUMN[column]] ?? null;  // a row of before the first sample of a probe is shorter
    return value === null ? null : value * factor;
  }));
  const known = values.flat().filter((value) => value !== null);
  const [least, most] = [Math.min(...known, 0), Math.max(...known, 0)];
  const step = stepOf(most - least || 1, 4);
  const bottom = Math.floor(least / step + 1e-9) * step;
  const top = Math.max(Math.ceil(most / step - 1e-9), bottom < 0 ? 0 : 1) * step;
  const height = (value) => 1 - (value - bottom) / (top - bottom);
  const panel = element("div", undefined, "panel"), head = element("p", `${title} `, "title");
  head.append(element("span", unit, "unit"));
  const legend = element("ul", undefined, "legend");
  const plot = drawing("svg", { class: "plot", role: "img" });
  // The window, and the grid with its figures.
  const [begin, end] = windowS.map((at) => Math.min(1, at / endS));
  plot.append(drawing("rect", { class: "window", x: percent(begin), width: percent(end - begin), height: "100%" }));
  for (let number = Math.round(bottom / step); number <= Math.round(top / step); number += 1) {
    const at = number * step, y = percent(height(at));
    plot.append(drawing("line", { class: "grid", x2: "100%", y1: y, y2: y }));
    plot.append(drawing("text", { x: -6, y, dy: 4, "text-anchor": "end" }, figure(Number(at.toPrecision(6)))));
  }
  const timeStep = timeStepOf(endS);
  for (let at = 0, number = 0; at <= endS * 1.001; at += timeStep, number += 1) {
    const x = percent(at / endS), kind = number % 2 ? { class: "second" } : {};
    plot.append(drawing("line", { class: "grid", x1: x, x2: x, y2: "100%" }));
    const anchor = at / endS > LAST ? "end" : "middle";  // the name of the last tick stays within the chart
    plot.append(drawing("text", { ...kind, x, y: "100%", dy: 16, "text-anchor": anchor }, clock(at)));
  }
  plot.append(drawing("line", { class: "edge", x2: "100%", y1: "100%", y2: "100%" }));
  // The lines, with the last figure of each in the legend.
  const words = [], shownLast = unit === "ms" ? duration : figure;
  lines.forEach(([name], number) => {
    const look = `line c${number % COLOURS} d${number % DASHES}`, last = values[number].at(-1) ?? null;
    const inner = drawing("svg", { viewBox: `0 0 ${UNITS} ${UNITS}`, preserveAspectRatio: "none", width: "100%",
      height: "100%" });
    let verb = "M", strokes = "";
    rows.forEach((row, at) => {
      const value = values[number][at];
      if (value === null) { verb = "M"; return; }
      const x = Math.round(row[COLUMN.end_s] / endS * UNITS), y = Math.round(height(value) * UNITS);
      strokes += `${verb}${x} ${y}${verb === "M" ? "h1" : ""}`;
      verb = "L";
    });
    inner.append(drawing("path", { class: look, d: strokes }));
    plot.append(inner);
    const key = drawing("svg", { class: "key", "aria-hidden": "true" }), item = element("li");
    key.append(drawing("line", { class: look, x1: 0, x2: "100%", y1: "50%", y2: "50%" }));
    item.append(key, `${name} `, element("b", shownLast(last)));
    legend.append(item);
    words.push(`${name} now ${shownLast(last)}`);
  });
  plot.setAttribute("aria-label", `${title}, ${unit}: ${words.join(", ")}; the axis goes from ${figure(bottom)} to ${figure(top)}.`);
  panel.append(head, legend, plot);
  return panel;
}

function drawCharts(shown) {
  const lastS = series.rows.length ? series.rows.at(-1)[COLUMN.end_s] : 0;
  const endS = Math.max(shown.series.duration_s, lastS);
  const draw = (each) => chart(each, series.rows, endS, shown.series.window_s);
  byId("charts").replaceChildren(...CHARTS.map(draw));
  byId("probed").hidden = !shown.charts.length;
  byId("probes").replaceChildren(...shown.charts.map(draw));
}

// --- the state

function said(text) { if (byId("said").textContent !== text) byId("said").textContent = text; }

function connection(text) {
  show("connection", text);
  byId("connection").hidden = !text;
  byId("connection").className = over ? "" : "verdict doubtful";
  if (text) said(text);
}

function taken(shown) {
  version = shown.version;
  shown.columns.forEach((name, at) => { COLUMN[name] = at; });
  const news = shown.series, same = news.run === series.run && news.generation === series.generation;
  const kept = same ? series.rows.slice(0, news.first) : [];
  series = { run: news.run, generation: news.generation, rows: [...kept, ...news.rows] };
  newsAt = new Date();
  over = shown.finished;
}

function drawn(shown) {
  document.title = `${shown.phase}: ${shown.title}`;
  show("title", shown.title);
  show("now", over ? "At the end" : "Now");
  show("phase", shown.ending ? `${shown.phase}, ${shown.ending}` : shown.phase);
  show("status", shown.status);
  const share = byId("share");
  share.hidden = shown.share === null;
  if (shown.share !== null) share.value = shown.share;
  byId("stop").hidden = !shown.stoppable && !shown.ending;
  byId("stop").disabled = Boolean(shown.ending);
  show("means", shown.stop_means);
  if (!shown.stoppable && byId("sure").open) byId("sure").close();
  connection(shown.finished ? `The run has ended, and loadsim with it. This page keeps its figures until you close it.`
    : shown.silent_s !== null ? `No figures from the load for ${shown.silent_s} s.` : "");
  if (!shown.finished && shown.silent_s === null) said(shown.result ? shown.result.verdict : shown.phase);
  result(shown.result);
  byId("earlier").hidden = !shown.earlier.length;
  list("runs", shown.earlier.map((run) => `${SIGNS[run.tone]} ${run.words}`));
  byId("figures").replaceChildren(...shown.figures.flatMap(([name, text, look]) =>
    [element("dt", name), element("dd", text, look ? "look" : "")]));
  list("warnings", shown.warnings, "look");
  soFar(shown.so_far);
  byId("tasks").hidden = !shown.tasks.length;
  table("by-task", "Since the start of the run; lately is the last minute", shown.task_columns, shown.tasks,
    ["", "figure", "figure", "figure", "figure"]);
  byId("failed").hidden = !shown.failures.length;
  table("failures", "Most frequent first", ["Task and kind", "Times"], shown.failures, ["", "figure"]);
  drawCharts(shown);
}

function result(found) {
  byId("result").hidden = !found;
  if (!found) return;
  byId("verdict").className = `verdict ${found.tone}`;
  show("verdict", `${SIGNS[found.tone]} ${found.verdict}`);
  show("headline", found.headline);
  list("reasons", found.reasons);
  show("places", `Run directory: ${found.directory}${found.report ? `. ${found.report}` : ""}`);
}

function soFar(found) {
  byId("so-far").hidden = !found;
  if (!found) return;
  show("seen", found.summary);
  list("generator", found.generator, "look");
  table("criteria", "Figures of the window so far, about", ["Criterion", "so far, about", "wanted", "if it ended now"],
    found.rows, ["", "figure", "figure", ""]);
  show("unknown", found.unknown.length ? `Known only after the end: ${found.unknown.join("; ")}.` : "");
}

// --- requests

async function ask(path, method) {
  const waiting = new AbortController(), limit = setTimeout(() => waiting.abort(), PATIENCE_MS);
  try {
    return await fetch(path, {
      method, headers: { Authorization: `Bearer ${token}` }, cache: "no-store", signal: waiting.signal,
    });
  } finally {
    clearTimeout(limit);
  }
}

function lost() {
  connection(newsAt ? `No news since ${newsAt.toLocaleTimeString()}. The figures below are from then.`
    : "No connection to loadsim.");
}

async function follow() {
  while (!over) {
    const have = new URLSearchParams({ page: own, version, run: series.run, generation: series.generation,
      rows: series.rows.length });
    try {
      const answer = await ask(`/state?${have}`, "GET");
      if (answer.status === 401) {
        connection("This address lacks the token of the run: open the one that loadsim printed.");
        return;
      }
      if (!answer.ok) throw new Error(answer.status);
      awaited = await answer.json();
      taken(awaited);
      if (!document.hidden || over) drawn(awaited);
    } catch (failure) {
      if (failure instanceof TypeError || failure instanceof DOMException || failure.message.match(/^\d+$/)) lost();
      else throw failure;
      await new Promise((next) => setTimeout(next, RETRY_MS));
    }
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && awaited) drawn(awaited); });
byId("stop").addEventListener("click", () => byId("sure").showModal());
byId("go-on").addEventListener("click", () => byId("sure").close());
byId("end").addEventListener("click", async () => {
  byId("sure").close();
  byId("stop").disabled = true;
  try {
    await ask("/stop", "POST");
  } catch {
    lost();
  }
});
follow();
