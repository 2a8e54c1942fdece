// Replays a drill, a simulation or a lab that was recorded: its events and losses on a line of time, the fabric as it was
// at any instant, and its flows to pick. All data are in the page.

import { h } from "./elements.js";
import { METRICS, moment, onTheme, shown } from "./format.js";
import { count, counted, size } from "./quantities.js";
import { FlowTable, timeOf } from "./flowtable.js";
import { openFolds } from "./folds.js";
import { Happenings } from "./happenings.js";
import { Picture, indexed, isDark, nameOf, named, stateOf } from "./picture.js";
import { plotsOf } from "./series.js";
import { sortTables } from "./tables.js";
import { TimePlots } from "./timeplots.js";

const STEPS = 500; // arrow keys cross the shown time in so many steps
const MOST_NAMED = 12;
const $ = (selector) => document.querySelector(selector);

const recording = JSON.parse($("#recording").textContent);
const fabric = indexed(recording);
for (const link of fabric.links) link.carrier = [true, true];
for (const { flows } of recording.runs) {
  for (const flow of flows) {
    const links = flow.path.map((number) => fabric.links[number]);
    flow.outages ??= [];
    flow.path = links.map(({ name }) => name);
    flow.passed = new Set(links.flatMap(({ a, b }) => [a, b]));
  }
}
let run = null;
let instant = 0;
let inForce = new Map();
let incomplete = new Map();
let most = 0;
let sample = null; // of a lab that was watched: what was read at or before the instant

const view = {
  metric: "load",
  path: new Set(),
  passed: new Set(),
  beside: new Set(),
  chosen: null,
  value: (direction) => (sample ? sample.values[view.metric]?.[direction] : most && run.loads[direction] / most) || 0,
  isDark,
  stateOf,
  nameOf,
};

sortTables();
openFolds();
$("#replay").hidden = false;
const picture = new Picture($("#stage"), { choose, tipOf, dark: recording.runs[0].samples ? "no carrier" : "a fault is in it" });
picture.drawing.zoom.filter((event) => (event.type === "wheel" ? event.ctrlKey : !event.button));
const plots = new TimePlots($("#plots"), { onWindow: showWindow, onPick: goTo });
const happenings = new Happenings($("#happenings"), { runs: recording.runs, goTo, chooser: (name) => (named(fabric, name) ? chooser(name) : name) });
const flows = new FlowTable($("#flows"), chooseFlow);
const slider = $("#slider");

$("#run").replaceChildren(...recording.runs.map(({ title }, place) => h("option", { value: place }, title)));
$("#run").value = recording.chosen;
$("#run").closest("label").hidden = recording.runs.length < 2;
$("#run").addEventListener("change", () => start(recording.runs[$("#run").value]));
$("#metric").addEventListener("change", () => {
  take($("#metric").value);
  picture.redraw();
});
$("#earlier").addEventListener("click", () => step(-1));
$("#later").addEventListener("click", () => step(1));
$("#whole").addEventListener("click", () => plots.show(run.begin_ns, run.end_ns));
$("#all-flows").addEventListener("click", () => chooseFlow(null));
slider.addEventListener("input", () => goTo(Number(slider.value)));
slider.addEventListener("keydown", (event) => {
  const size = (slider.max - slider.min) / STEPS;
  const move = { ArrowLeft: -size, ArrowDown: -size, ArrowRight: size, ArrowUp: size }[event.key];
  const events = { PageUp: -1, PageDown: 1 }[event.key];
  if (move) goTo(Math.min(slider.max, Math.max(slider.min, Number(slider.value) + move)));
  else if (events) step(events);
  else return;
  event.preventDefault();
});
onTheme(() => {
  picture.redraw();
  plots.redraw();
});
start(recording.runs[recording.chosen]);

function start(next) {
  run = next;
  const isTimeless = run.begin_ns === run.end_ns;
  $("#replay").classList.toggle("timeless", isTimeless);
  most = d3.max(isTimeless ? recording.runs : [run], ({ loads }) => d3.max(loads)) ?? 0;
  if (run.samples) {
    for (const held of [run.samples.carrier, run.samples.states]) fill(held);
    $("#well").textContent = "as planned";
  }
  const metrics = Object.keys(METRICS).filter((metric) => run.samples?.values.some((values) => metric in values));
  $("#metric").replaceChildren(...metrics.map((metric) => h("option", { value: metric }, METRICS[metric].title)));
  $("#metric").closest("label").hidden = metrics.length < 2;
  take(metrics[0] ?? "load");
  $("#clock").hidden = !run.jobs.length || run.dilation === 1;
  $("#flows").hidden = !run.flows.length;
  for (const flow of run.flows) flow.outage_ns = d3.sum(flow.outages, ([begin, end]) => (end ?? run.end_ns) - begin);
  happenings.start(run);
  $("#happenings").hidden = !happenings.all.length;
  flows.start(run);
  picture.show(fabric, view);
  chooseFlow(null);
  goTo(Math.max(0, worstFault(run)?.t_ns ?? 0));
}

// The fault after which most packets were lost, until the next; of equals the first.
function worstFault({ events, flows: of }) {
  const faults = events.filter(({ kind }) => kind === "fault");
  const lost = faults.map(({ t_ns: t }, place) => d3.sum(of.flatMap(({ outages }) => outages), ([begin, , packets]) => (begin >= t && begin < (faults[place + 1]?.t_ns ?? Infinity) ? packets : 0)));
  return faults[d3.maxIndex(lost)];
}

// What is as in the sample before.
function fill(held) {
  held.forEach((each, place) => { held[place] = each ?? held[place - 1]; });
}

// Links are coloured by a metric.
function take(metric) {
  view.metric = metric;
  const { title, unit } = METRICS[metric];
  $("#loads").hidden = !most && !run.samples;
  $("#loads").textContent = `Links are coloured by ${run.samples ? `${title}, ${unit}, as read at or before the instant` : `the ${run.loads_are}`}.`;
}

function step(direction) {
  const next = happenings.beside(instant, direction);
  if (next != null) goTo(next);
}

// Show the fabric, the losses and the events as of `t_ns`.
function goTo(t) {
  instant = t;
  standAt(t);
  plots.at(t);
  happenings.at(t);
  const last = d3.greatest(run.events.filter(({ kind, t_ns: at }) => kind === "fault" && at <= t), ({ t_ns: at }) => at);
  const what = last ? `${last.fault} of ${last.subject} ${last.begins ? "begins" : "ends"}` : "";
  const after = !last ? (run.events.some(({ kind }) => kind === "fault") ? "before the first event" : "nothing was broken") : t === last.t_ns ? what : `${moment(t - last.t_ns)} after ${what}`;
  $("#instant").textContent = `At ${moment(t)}: ${after}`;
  slider.value = t;
  slider.setAttribute("aria-valuetext", $("#instant").textContent);
  showState();
  picture.redraw();
}

// The shown time has changed: the instant is always inside it.
function showWindow(low, high) {
  Object.assign(slider, { min: low, max: high, step: "any", value: instant });
  const { left, width } = plots.area();
  slider.style.marginLeft = `${left - 8}px`;
  slider.style.width = `${width + 16}px`;
  if (instant < low || instant > high) goTo(instant < low ? low : high);
}

// What holds at an instant follows from the events up to it.
function standAt(t) {
  inForce = new Map();
  incomplete = new Map();
  for (const event of run.events) {
    if (event.t_ns > t) break;
    if (event.kind === "routes") incomplete.set(event.node, event.incomplete);
    if (event.kind !== "fault") continue;
    const key = `${event.fault} of ${event.subject}`;
    if (event.begins) inForce.set(key, event);
    else inForce.delete(key);
  }
  const broken = new Set();
  const dead = new Set();
  const faulty = new Set();
  for (const { links, nodes, dark } of inForce.values()) {
    for (const link of links) broken.add(link);
    for (const node of nodes) (dark ? dead : faulty).add(node);
  }
  sample = run.samples ? sampleAt(run.samples, t) : null;
  if (sample) {
    for (const link of fabric.links) link.carrier = sample.carrier[link.name] ?? [true, true];
    for (const node of fabric.nodes) node.state = sample.states[node.name] ?? "ok";
    return;
  }
  for (const link of fabric.links) {
    const isBroken = broken.has(link.name) || dead.has(link.a) || dead.has(link.b);
    link.carrier = [!isBroken, !isBroken];
  }
  for (const node of fabric.nodes) {
    const isDegraded = faulty.has(node.name) || incomplete.get(node.name) || fabric.linksOf.get(node.name).some(isDark);
    node.state = dead.has(node.name) ? "down" : isDegraded ? "degraded" : "ok";
  }
}

function sampleAt({ t_ns: times, values, carrier, states }, t) {
  const place = Math.max(0, d3.bisectRight(times, t) - 1);
  return { values: values[place], carrier: carrier[place], states: states[place] };
}

function showState() {
  const narrow = [...incomplete].filter(([, routes]) => routes);
  const losing = run.flows.filter(({ outages }) => outages.some(([begin, end]) => begin <= instant && instant < (end ?? Infinity)));
  const unwell = Object.entries(sample?.states ?? {});
  const lines = [
    ...[...inForce.values()].map(({ fault, subject }) => h("li", { class: "bad" }, `${fault} of ${subject}`)),
    ...narrow.slice(0, MOST_NAMED).map(([node, routes]) => h("li", { class: "degraded" }, chooser(node), `: ${counted(routes, "route")} missing or narrower than before`)),
    narrow.length > MOST_NAMED ? h("li", {}, `and ${counted(narrow.length - MOST_NAMED, "more switch", "more switches")}`) : null,
    ...unwell.slice(0, MOST_NAMED).map(([node, state]) => h("li", { class: state }, chooser(node), `: ${state}`)),
    unwell.length > MOST_NAMED ? h("li", {}, `and ${counted(unwell.length - MOST_NAMED, "more node")}`) : null,
    losing.length ? h("li", { class: "bad" }, `${counted(losing.length, "flow")} ${losing.length === 1 ? "loses" : "lose"} packets: `,
      ...losing.slice(0, MOST_NAMED).flatMap((flow) => [h("button", { class: "link", onclick: () => chooseFlow(flow) }, flow.name), " "]),
      losing.length > MOST_NAMED ? `and ${count(losing.length - MOST_NAMED)} more` : "") : null,
  ].filter(Boolean);
  $("#state").replaceChildren(...(lines.length ? lines : [h("li", { class: "ok" }, run.samples ? "All nodes are as planned." : run.events.length ? "All is as before the first event." : "Nothing was broken.")]));
}

function chooser(name) {
  return h("button", { class: "link", onclick: () => choose(named(fabric, name)) }, name);
}

// A node or a link was chosen: the table has the flows that crossed it.
function choose({ node, link, links, members }) {
  const name = node?.name ?? link?.name ?? links?.[0].name ?? members?.[0].name;
  view.chosen = view.chosen === name ? null : name;
  flows.filter(view.chosen ?? "");
  picture.redraw();
}

function chooseFlow(flow) {
  view.path = new Set(flow?.path);
  view.passed = flow?.passed ?? new Set();
  flows.mark(flow);
  plots.start(run, plotsOf(run, flow));
  $("#all-flows").hidden = !flow;
  const all = run.about ? run.about : run.jobs.length ? run.jobs.map(({ name }) => name).join(", ") : "All flows together";
  const sent = !flow?.payload_bytes ? "" : `: ${size(flow.payload_bytes)}${flow.transfers ? `, its slowest transfer ${timeOf(flow.longest_ns)}` : ` in ${counted(flow.packets, "packet")}`}`;
  $("#of").textContent = flow ? `Flow ${flow.name}, ${flow.source} → ${flow.destination}${sent}` : all;
  $("#path-note").textContent = !flow ? "" : flow.path.length ? `Yellow: ${run.paths_are}: ${first(flow.path)}.` : "Its path is not in this result.";
  plots.at(instant);
  picture.redraw();
}

function first(names) {
  const more = names.length - MOST_NAMED;
  return [...names.slice(0, MOST_NAMED), ...(more > 0 ? [`and ${counted(more, "more link")}`] : [])].join(", ");
}

function tipOf({ links, a, b }) {
  const lines = [links.length === 1 ? links[0].name : `${links.length} links`];
  if (sample) {
    for (const [way, to] of [[0, b], [1, a]]) {
      lines.push(`to ${nameOf(to)}: ${shown(view.metric, d3.max(links, ({ index }) => view.value(2 * index + way)))}`);
    }
  } else if (most) {
    for (const [way, to] of [[0, b], [1, a]]) {
      const most = d3.max(links, ({ index }) => run.loads[2 * index + way] ?? 0);
      lines.push(`to ${nameOf(to)}: ${count(most)} ${run.loads_are.split(" ")[0]}`);
    }
  }
  const broken = new Set(links.filter(isDark).map(({ name }) => name));
  for (const { fault, subject, links: of, nodes } of inForce.values()) {
    if (of.some((name) => broken.has(name)) || links.some((link) => nodes.includes(link.a) || nodes.includes(link.b))) lines.push(`${fault} of ${subject}`);
  }
  return lines;
}
