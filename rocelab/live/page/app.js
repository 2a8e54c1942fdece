// The page: its state, which messages of the stream change, and what shows it.

import { Drawing, tipOf } from "./canvas.js";
import { h } from "./elements.js";
import { Flow } from "./flow.js";
import { METRICS, clock, count, onTheme, range, scale } from "./format.js";
import { MATRIX_FROM, layout, leavesOf } from "./layout.js";
import { Matrix } from "./matrix.js";
import { Panel } from "./panel.js";
import { get, keepKey, post } from "./requests.js";
import { Scheme } from "./scheme.js";
import { Scrubber } from "./scrub.js";
import { NodeTerminal } from "./terminal.js";
import { Timeline } from "./timeline.js";
import { Traffic } from "./traffic.js";

const UNFOLDED = 50; // as many nodes are shown without folding zones
const SEVERITY = { ok: 0, degraded: 1, down: 2 };
const $ = (selector) => document.querySelector(selector);

let fabric = null;
let faults = new Map();
let folded = new Set();
let matrix = null;
const view = {
  metric: localStorage.getItem("rocelab-metric") ?? "load",
  values: {},
  path: new Set(),
  passed: new Set(),
  beside: new Set(),
  chosen: null,
  readOnly: false,
  terminal: false,
  past: null, // what held at the time that is looked at, null for now
  value: (direction) => (view.past ?? view).values[direction] ?? 0,
  valueNow: (direction) => view.values[direction] ?? 0,
  isDark: (link) => {
    const carrier = view.past ? view.past.carrier[link.name] ?? [true, true] : link.carrier;
    return !(carrier[0] && carrier[1]);
  },
  linkOf: (name) => fabric.linkBy.get(name),
  linksOf: (name) => fabric.linksOf.get(name),
  stateOf: (box) => {
    const members = box.node ? [box.node] : box.members;
    const states = members.map((node) => (view.past ? view.past.states[node.name] ?? "ok" : node.state));
    return states.reduce((worst, state) => (SEVERITY[state] > SEVERITY[worst] ? state : worst), "ok");
  },
  nameOf: (box) => {
    if (box.node) return box.node.name;
    if (box.leaf) return `${box.members.length} servers`;
    const switches = box.members.filter((node) => node.tier > 0).length;
    return `zone ${box.zone}: ${switches} switches, ${box.members.length - switches} servers`;
  },
};

keepKey();
const drawing = new Drawing($("#stage"), { pick: pickDrawn, tip });
const terminal = new NodeTerminal($("#terminal"));
const panel = new Panel($("#panel"), { pick, openTerminal: (node, program) => terminal.open(node, program), view });
const scheme = new Scheme($("#scheme"));
const flow = new Flow($("#flow"), {
  pick,
  mark(path, passed, beside) {
    Object.assign(view, { path, passed, beside });
    redraw();
  },
});
const traffic = new Traffic($("#traffic"), (isUsed) => flow.follow(isUsed));
const timeline = new Timeline($("#timeline"), pick);
const scrubber = new Scrubber($("#scrub"), (past) => {
  view.past = past;
  document.body.classList.toggle("past", past !== null);
  timeline.lookAt(past?.t_ns ?? null);
  redraw();
});
const worker = new SharedWorker("/page/worker.js");
worker.port.onmessage = ({ data: { kind, data, id } }) => take[kind](data, id);
worker.port.postMessage({ metric: view.metric });
addEventListener("pagehide", () => worker.port.postMessage({ close: true }));
addEventListener("pageshow", ({ persisted }) => persisted && worker.port.postMessage({ metric: view.metric }));

const take = {
  connection({ up, refused }) {
    const said = refused ? "refused: open the URL that rocelab live printed last" : up ? "live" : "connection lost, reconnecting";
    $("#connection [role=status]").textContent = said;
    $("#connection").className = up ? "up" : "lost";
    document.body.classList.toggle("stale", !up);
  },
  metric(metric) {
    view.metric = metric;
    view.values = {};
    localStorage.setItem("rocelab-metric", metric);
    scrubber.take(metric);
    showScale();
  },
  fabric(document, id) {
    fabric = prepared(document, id ?? document.id);
    faults = new Map(fabric.faults.map((fault) => [fault.number, fault]));
    view.readOnly = fabric.read_only;
    view.terminal = fabric.terminal;
    timeline.clear();
    scrubber.live();
    start();
  },
  event(event, id) {
    timeline.add(event);
    // An event from before the state that the page began with is in that state already.
    if (number(id) > fabric.position) changed(event);
  },
  sample({ t_ns: t, values }) {
    Object.assign(view.values, values);
    scrubber.sampled(t);
    $("#read").textContent = `last read at ${clock(t, 1)}`;
    redraw();
  },
};

function number(id) {
  return Number(id.split("-")[1]);
}

function prepared(document, id) {
  const found = { ...document, position: number(id) };
  found.nodeBy = new Map(found.nodes.map((node) => [node.name, node]));
  found.linkBy = new Map(found.links.map((link) => [link.name, link]));
  found.linksOf = new Map(found.nodes.map((node) => [node.name, []]));
  found.links.forEach((link, index) => {
    link.index = index;
    found.linksOf.get(link.a).push(link);
    found.linksOf.get(link.b).push(link);
  });
  return found;
}

function changed(event) {
  if (event.kind === "carrier") {
    const link = fabric.linkBy.get(event.link);
    link.carrier[event.node === link.a ? 0 : 1] = event.carrier;
    panel.touched([link.name, link.a, link.b]);
  } else if (event.kind === "node") {
    fabric.nodeBy.get(event.node).state = event.state;
    panel.touched([event.node]);
  } else if (event.kind === "session") {
    panel.touched([event.node, event.link]);
  } else if (event.kind === "fault") {
    if (event.begins) faults.set(event.number, event);
    else faults.delete(event.number);
    showFaults();
  } else if (event.kind === "scheme") {
    scheme.show(event.scheme);
  } else if (event.kind === "job") {
    traffic.follow();
  } else if (event.kind === "use") {
    traffic.show(event.user && event);
  }
  redraw();
}

function start() {
  document.title = `${fabric.lab} · rocelab`;
  $("#lab").textContent = fabric.lab;
  const switches = fabric.nodes.filter((node) => node.tier > 0).length;
  $("#summary").textContent = `${count(switches)} switches · ${count(fabric.nodes.length - switches)} servers · ${count(fabric.links.length)} links${fabric.read_only ? " · read only" : ""}`;
  const zones = new Set(fabric.nodes.map((node) => node.zone).filter((zone) => zone != null));
  folded = zones.size > 1 && fabric.nodes.length > UNFOLDED ? zones : new Set();
  $("#fold").hidden = zones.size < 2;
  flow.start(fabric);
  scheme.start(fabric);
  traffic.start(fabric);
  showFaults();
  place();
}

// Lay the fabric out and draw it: as a matrix where one zone has many leaves, else in tiers.
function place() {
  const zones = [...new Set(fabric.nodes.filter((node) => node.tier === 1).map((node) => node.zone))].filter((zone) => !folded.has(zone));
  const large = zones.find((zone) => leavesOf(fabric, zone).length >= MATRIX_FROM);
  $("#stage").classList.toggle("as-matrix", large !== undefined);
  $("#ways").textContent = large === undefined
    ? "Of the two lines of a link, each is on the right-hand side of its direction. Red and dashed: no carrier."
    : "A cell is a link: up in its upper left, down in its lower right; red has no carrier.";
  if (large === undefined) {
    matrix?.canvas.remove();
    matrix?.heads.remove();
    matrix = null;
    const { clientWidth, clientHeight } = $("#stage");
    drawing.show(layout(fabric, folded, clientWidth, clientHeight), view);
    drawing.fit();
    return;
  }
  matrix ??= new Matrix($("#stage"), { pick: pickDrawn, tip });
  const columns = leavesOf(fabric, large);
  const above = new Set(columns.flatMap((leaf) => fabric.linksOf.get(leaf.name).filter((link) => link.a === leaf.name).map((link) => link.b)));
  matrix.show(fabric, columns, fabric.nodes.filter((node) => above.has(node.name)), view);
}

function redraw() {
  if (matrix) matrix.redraw();
  else drawing.redraw();
}

function pickDrawn({ box, edge }) {
  if (edge) {
    choose(edge.links.length === 1 ? { link: edge.links[0] } : { links: edge.links, title: `${edge.links.length} links` });
  } else if (box.node) {
    choose({ node: box.node });
  } else if (box.zone !== undefined) {
    folded.delete(box.zone);
    place();
  } else {
    choose({ members: box.members, title: box.key });
  }
}

// A name of a node or a link, as events have it; of several links the first.
function pick(name) {
  const node = fabric.nodeBy.get(name);
  const link = fabric.linkBy.get(name) ?? fabric.linkBy.get(name.split(/[, ]/)[0]);
  if (node) choose({ node });
  else if (link) choose({ link });
}

function choose(choice) {
  view.chosen = choice.node?.name ?? choice.link?.name ?? null;
  panel.show(choice);
  redraw();
}

function tip(edge, x, y) {
  const box = $("#tip");
  box.hidden = !edge;
  if (!edge) return;
  box.replaceChildren(...tipOf(edge, view).map((line) => h("div", {}, line)));
  const left = Math.min(x + 14, $("#stage").clientWidth - box.offsetWidth - 8);
  box.style.transform = `translate(${left}px, ${y + 14}px)`;
}

function showScale() {
  for (const input of document.querySelectorAll("#metrics input")) input.checked = input.value === view.metric;
  const canvas = $("#scale");
  const context = canvas.getContext("2d");
  const colours = scale();
  for (let x = 0; x < canvas.width; x += 1) {
    context.fillStyle = colours(0.15 + (0.85 * x) / canvas.width);
    context.fillRect(x, 0, 1, canvas.height);
  }
  [$("#scale-low").textContent, $("#scale-high").textContent] = range(view.metric);
  $("#legend").title = METRICS[view.metric].unit;
  redraw();
}

function showFaults() {
  $("#faults").hidden = !faults.size;
  d3.select("#faults ul").selectChildren()
    .data([...faults.values()], ({ number }) => number)
    .join((enter) => enter.append(faultRow));
  countDown();
}

function faultRow(fault) {
  const refused = h("span", { class: "bad", role: "alert" });
  const undo = async (event) => {
    event.target.disabled = true;
    try {
      await post(`/faults/${fault.number}/undo`);
    } catch (error) {
      event.target.disabled = false;
      refused.textContent = ` ${error.message}`;
    }
  };
  return h("li", {},
    h("span", {}, `${fault.fault} of `, h("button", { class: "link", onclick: () => pick(fault.subject) }, fault.subject)),
    h("span", { class: "countdown", "data-ends": fault.ends_ns ?? "" }),
    view.readOnly ? "" : h("button", { onclick: undo }, "Undo"), refused);
}

function countDown() {
  for (const each of document.querySelectorAll(".countdown")) {
    const ends = Number(each.dataset.ends);
    each.textContent = ends ? `${Math.max(0, Math.ceil(ends / 1e9 - Date.now() / 1e3))} s left` : "until it is undone";
  }
}

$("#metrics").append(...Object.entries(METRICS).map(([metric, { title, unit }]) => {
  const input = h("input", { type: "radio", name: "metric", value: metric, onchange: () => worker.port.postMessage({ metric }) });
  return h("label", { title: unit }, input, title);
}));
$("#fit").addEventListener("click", () => drawing.fit());
$("#fold").addEventListener("click", () => {
  folded = new Set(fabric.nodes.map((node) => node.zone).filter((zone) => zone != null));
  place();
});
new ResizeObserver(() => {
  if (fabric) place();
}).observe($("#stage"));
setInterval(countDown, 250);
onTheme(showScale);
showScale();
get("/kinds").then((kinds) => { panel.kinds = kinds; }, () => {});
