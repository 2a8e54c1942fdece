// The page: its state, which messages of the stream change, and what shows it.

import { tipOf } from "./canvas.js";
import { h } from "./elements.js";
import { Flow } from "./flow.js";
import { METRICS, onTheme, clock, range, scale } from "./format.js";
import { count } from "./quantities.js";
import { Impact } from "./impact.js";
import { Lanes } from "./lanes.js";
import { Networks } from "./networks.js";
import { Panel } from "./panel.js";
import { Picture, indexed, isDark, nameOf, named, stateOf } from "./picture.js";
import { get, keepKey, post } from "./requests.js";
import { Reach } from "./reach.js";
import { Scheme } from "./scheme.js";
import { Scrubber } from "./scrub.js";
import { Steps } from "./steps.js";
import { NodeTerminal } from "./terminal.js";
import { Timeline } from "./timeline.js";
import { Traffic } from "./traffic.js";

const $ = (selector) => document.querySelector(selector);

let fabric = null;
let faults = new Map();
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
  isDark: (link) => isDark(view.past ? { carrier: view.past.carrier[link.name] ?? [true, true] } : link),
  linkOf: (name) => fabric.linkBy.get(name),
  linksOf: (name) => fabric.linksOf.get(name).filter((link) => networks.has(link.network)),
  has: (network) => networks.has(network),
  stateOf: (box) => stateOf(box, (node) => (view.past ? view.past.states[node.name] ?? "ok" : node.state)),
  nameOf,
  lab: () => fabric.lab,
};

keepKey();
const picture = new Picture($("#stage"), { choose, tipOf: (edge) => tipOf(edge, view), dark: "no carrier" });
const networks = new Networks($("#networks"), () => {
  picture.show(networks.part(), view);
  timeline.redraw();
  panel.lookAt();
});
const terminal = new NodeTerminal($("#terminal"));
const panel = new Panel($("#panel"), { pick, openTerminal: (node, program) => terminal.open(node, program), view });
const scheme = new Scheme($("#scheme"));
const reach = new Reach($("#reach"), (nic) => h("button", { class: "link", onclick: () => pick(nic.split(":")[0]) }, nic));
const flow = new Flow($("#flow"), {
  pick,
  mark(path, passed, beside) {
    Object.assign(view, { path, passed, beside });
    picture.redraw();
  },
});
const impact = new Impact($("#impact"), { pick, measured: (result) => lanes.measured(result) });
const traffic = new Traffic($("#traffic"), {
  changed: (isUsed) => flow.follow(isUsed),
  followed(newest) {
    impact.show(newest);
    showSteps();
  },
});
const steps = new Steps($("#steps"), { send: () => traffic.probe(), busiest, pick, impact: $("#impact") });
const lanes = new Lanes($("#history"), (t) => scrubber.goTo(t));
const timeline = new Timeline($("#timeline"), { pick, has: (event) => networks.hasEvent(event), shown: (events) => lanes.show(events), goTo: (t) => scrubber.goTo(t) });
const scrubber = new Scrubber($("#scrub"), (past) => {
  view.past = past;
  document.body.classList.toggle("past", past !== null);
  timeline.lookAt(past?.t_ns ?? null);
  lanes.lookAt(past?.t_ns ?? null);
  panel.lookAt();
  picture.redraw();
});
const worker = connected();
worker.onmessage = ({ data: { kind, data, id } }) => take[kind](data, id);
worker.postMessage({ metric: view.metric });
addEventListener("pagehide", () => worker.postMessage({ close: true }));
addEventListener("pageshow", ({ persisted }) => persisted && worker.postMessage({ metric: view.metric }));

const take = {
  connection({ up, refused, ended }) {
    const lost = ended ? "ended" : "connection lost, reconnecting";
    const said = refused ? "refused: open the URL that rocelab live printed last" : up ? "live" : lost;
    $("#connection [role=status]").textContent = said;
    $("#ended").textContent = up ? "" : ended;
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
    fabric = { ...indexed(document), position: number(id ?? document.id) };
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
  sample({ t_ns: t, values, traffic: packets, steps: ticks = [] }) {
    Object.assign(view.values, values);
    scrubber.sampled(t);
    impact.stepped(ticks);
    lanes.sampled(t, packets?.lost);
    $("#read").textContent = `last read at ${clock(t, 1)}`;
    picture.redraw();
  },
};

// A port of what holds the connection.
function connected() {
  if (window.SharedWorker) return new SharedWorker("/page/worker.js").port;
  const { port1, port2 } = new MessageChannel();
  new Worker("/page/worker.js").postMessage(null, [port2]);
  return port1;
}

function number(id) {
  return Number(id.split("-")[1]);
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
    impact.happened(event);
    showFaults();
  } else if (event.kind === "scheme") {
    scheme.show(event.scheme);
  } else if (event.kind === "job") {
    traffic.follow();
  } else if (event.kind === "use") {
    traffic.show(event.user && event);
    showSteps();
  }
  networks.update();
  picture.redraw();
}

function start() {
  document.title = `${fabric.lab} · rocelab`;
  $("#lab").textContent = fabric.lab;
  const switches = fabric.nodes.filter((node) => node.tier > 0).length;
  $("#summary").textContent = `${count(switches)} switches · ${count(fabric.nodes.length - switches)} servers · ${count(fabric.links.length)} links${fabric.read_only ? " · read only" : ""}`;
  flow.start(fabric);
  scheme.start(fabric);
  reach.start(fabric);
  traffic.start(fabric);
  showFaults();
  networks.start(fabric);
  picture.show(networks.part(), view);
}

function pick(name) {
  const choice = named(fabric, name);
  if (choice) choose(choice);
}

function choose(choice) {
  view.chosen = choice.node?.name ?? choice.link?.name ?? null;
  panel.show(choice);
  picture.redraw();
}

function showScale() {
  for (const input of document.querySelectorAll("#metrics input")) input.checked = input.value === view.metric;
  const canvas = $("#scale");
  const context = canvas.getContext("2d");
  const colours = scale();
  for (let x = 0; x < canvas.width; x += 1) {
    context.fillStyle = colours(x / canvas.width);
    context.fillRect(x, 0, 1, canvas.height);
  }
  [$("#scale-low").textContent, $("#scale-high").textContent] = range(view.metric);
  picture.redraw();
}

// The links between the two switches of the busiest link.
function busiest() {
  const tierOf = (name) => fabric.nodeBy.get(name).tier;
  const between = fabric.links.filter(({ a, b, index }) => tierOf(a) > 0 && tierOf(b) > 0 && !isDark(fabric.links[index]));
  const load = ({ index }) => view.valueNow(2 * index) + view.valueNow(2 * index + 1);
  const most = d3.greatest(between, load);
  return most ? between.filter(({ a, b }) => a === most.a && b === most.b) : [];
}

function showSteps() {
  steps.show({ readOnly: view.readOnly, traffic: traffic.job, isBroken: faults.size > 0, isUsed: Boolean(traffic.use) });
}

function showFaults() {
  showSteps();
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
  const input = h("input", { type: "radio", name: "metric", value: metric, onchange: () => worker.postMessage({ metric }) });
  return h("label", { title: unit }, input, title);
}));
setInterval(countDown, 250);
onTheme(showScale);
showScale();
get("/kinds").then((kinds) => { panel.kinds = kinds; }, () => {});
