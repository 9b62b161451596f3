"use strict";
// Shows the state that the server sends, and requests the next one. Server texts are text nodes, never markup.

const RETRY_MS = 2000, PATIENCE_MS = 25000, MOST_POINTS = 600;
const COLOURS = 7, DASHES = 4;  // of chart lines in the style sheet
const SIGNS = { good: "\u2713", doubtful: "!", bad: "\u00d7" };

const token = location.hash.slice(1), own = Math.random().toString(36).slice(2) + "0";
const byId = (id) => document.getElementById(id);
let version = -1, points = [], newsAt = null, over = false, state = null;

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
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

function list(id, texts, kind) {
  byId(id).replaceChildren(...texts.map((text) => element("li", text, kind)));
}

// --- charts: each has the lines named by the server, and their values since the page was opened

function figure(value) {
  if (value === null) return "\u2013";
  if (Math.abs(value) >= 1e15) return value.toExponential(2);
  const digits = Math.abs(value) < 1000 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 };
  return value.toLocaleString("en", digits);
}

function clock(seconds) {
  const [minutes, rest] = [Math.floor(seconds / 60), Math.floor(seconds) % 60];
  return `${minutes}:${String(rest).padStart(2, "0")}`;
}

function noted(shown) {
  if (shown.at_s === null || (points.length && shown.at_s <= points.at(-1).at_s)) return;
  const values = new Map(shown.charts.map(([title, , lines]) => [title, new Map(lines)]));
  points.push({ at_s: shown.at_s, values });
  if (points.length > MOST_POINTS) points.shift();
}

function chart([title, unit, lines]) {
  const valuesOf = ([name]) => points.map((point) => point.values.get(title)?.get(name) ?? null);
  const series = lines.map(valuesOf), known = series.flat().filter((value) => value !== null);
  const bottom = Math.min(0, ...known), top = Math.max(0, ...known) || (bottom ? 0 : 1);
  const [beginS, endS] = [points[0]?.at_s ?? 0, points.at(-1)?.at_s ?? 0];
  const x = (at_s) => (endS > beginS ? (at_s - beginS) / (endS - beginS) * 1000 : 1000);
  const y = (value) => 1000 - (value - bottom) / (top - bottom) * 1000;
  const panel = element("div", undefined, "panel"), head = element("p", `${title} `, "title");
  head.append(element("span", unit, "unit"));
  const legend = element("ul", undefined, "legend"), plot = drawing("svg", { class: "plot", role: "img" });
  for (const value of [bottom, top]) {
    const at = `${y(value) / 10}%`;
    plot.append(drawing("line", { class: "grid", x2: "100%", y1: at, y2: at }));
    plot.append(drawing("text", { x: -6, y: at, dy: 4, "text-anchor": "end" }, figure(value)));
  }
  plot.append(drawing("text", { x: 0, y: "100%", dy: 16 }, clock(beginS)));
  plot.append(drawing("text", { x: "100%", y: "100%", dy: 16, "text-anchor": "end" }, clock(endS)));
  lines.forEach(([name, now], number) => {
    const look = `line c${number % COLOURS} d${number % DASHES}`;
    let verb = "M", strokes = "";
    series[number].forEach((value, at) => {
      if (value !== null) strokes += `${verb}${x(points[at].at_s).toFixed(1)} ${y(value).toFixed(1)}`;
      verb = value === null ? "M" : "L";
    });
    const inner = drawing("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", width: "100%",
      height: "100%" });
    inner.append(drawing("path", { class: look, d: strokes }));
    plot.append(inner);
    const key = drawing("svg", { class: "key", "aria-hidden": "true" }), item = element("li");
    key.append(drawing("line", { class: look, x1: 0, x2: "100%", y1: "50%", y2: "50%" }));
    item.append(key, `${name} `, element("b", figure(now)));
    legend.append(item);
  });
  const now = lines.map(([name, value]) => `${name} ${figure(value)}`).join(", ");
  plot.setAttribute("aria-label", `${title}, ${unit}, now: ${now}; from ${figure(bottom)} to ${figure(top)}.`);
  panel.append(head, legend, plot);
  return panel;
}

// --- the state

function connection(text) {
  show("connection", text);
  byId("connection").hidden = !text;
  byId("connection").className = over ? "" : "verdict doubtful";
}

function drawn(shown) {
  document.title = `${shown.phase}: ${shown.title}`;
  show("title", shown.title);
  show("now", over ? "At the end" : "Now");
  show("phase", shown.phase);
  show("status", shown.status);
  byId("share").hidden = shown.share === null;
  if (shown.share !== null) byId("share").value = shown.share;
  connection(over ? "The run and loadsim have ended. This page keeps its figures until you close it." : "");
  byId("result").hidden = !shown.result;
  if (shown.result) {
    const { tone, verdict, headline, reasons, directory } = shown.result;
    byId("verdict").className = `verdict ${tone}`;
    show("verdict", `${SIGNS[tone]} ${verdict}`);
    show("headline", headline);
    list("reasons", reasons);
    show("place", `Run directory: ${directory}`);
  }
  byId("figures").replaceChildren(...shown.figures.flatMap(([name, text, look]) =>
    [element("dt", name), element("dd", text, look ? "look" : "")]));
  list("warnings", shown.warnings, "look");
  byId("tasks").hidden = !shown.tasks.length;
  const cell = (name, scope) => (text, at) => {
    const made = element(at ? name : "th", text, at ? "figure" : "");
    if (scope || !at) made.scope = scope || "row";
    return made;
  };
  byId("columns").replaceChildren(...shown.columns.map(cell("th", "col")));
  byId("rows").replaceChildren(...shown.tasks.map((task) => {
    const row = element("tr");
    row.append(...task.map(cell("td")));
    return row;
  }));
  byId("charts").replaceChildren(...shown.charts.map(chart));
}

// --- requests

function ask(path) {
  const headers = { Authorization: `Bearer ${token}` };
  return fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
}

function lost() {
  connection(newsAt ? `No news since ${newsAt.toLocaleTimeString()}. The figures below are from then.`
    : "No connection to loadsim.");
}

async function follow() {
  while (!over) {
    try {
      const answer = await ask(`/state?${new URLSearchParams({ page: own, version })}`);
      if (answer.status === 401) {
        connection("This address lacks the run's token: open the one that loadsim printed.");
        return;
      }
      if (!answer.ok) throw new TypeError(answer.status);
      state = await answer.json();
      [version, newsAt, over] = [state.version, new Date(), state.finished];
      noted(state);
      if (!document.hidden || over) drawn(state);
    } catch (failure) {
      if (!(failure instanceof TypeError || failure instanceof DOMException)) throw failure;
      lost();
      await new Promise((next) => setTimeout(next, RETRY_MS));
    }
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && state) drawn(state); });
follow();
