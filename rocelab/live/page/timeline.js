// The list of events, newest first, in the order of their own times: a session's line of the log
// comes later than the carrier's event that caused it. Times count from the fault before them. What a
// fault did is one row with it, until it is asked for.

import { h } from "./elements.js";
import { STATES, clock, moment } from "./format.js";
import { count, duration } from "./quantities.js";
import { paced } from "./pace.js";

const KEPT = 2000;
const ROWS = 60; // and as many more each time that older ones are asked for
const NEAR_NS = 60e9;
const SHOWN_WITH = { gap: "note", use: "job" };

// The kind of KINDS with which an event is shown.
export function kindOf(event) {
  return SHOWN_WITH[event.kind] ?? event.kind;
}

export const KINDS = { fault: "faults", carrier: "carriers", session: "sessions", routes: "routes", node: "states", scheme: "schemes", job: "jobs", note: "notes" };

export class Timeline {
  // `has`: whether an event is to be shown; `shown` gets those that are kept; `goTo`: an instant was
  // chosen.
  constructor(section, { pick, has, shown, goTo }) {
    this.has = has;
    this.shown = shown;
    this.goTo = goTo;
    this.open = new Set();
    this.list = section.querySelector("ol");
    this.older = section.querySelector("#older");
    this.older.addEventListener("click", () => {
      this.most += ROWS;
      this.redraw();
    });
    this.most = ROWS;
    this.pick = pick;
    this.events = [];
    this.added = 0;
    this.hidden = new Set();
    this.redraw = paced(() => this.#draw());
    const boxes = Object.entries(KINDS).map(([kind, title]) => {
      const box = h("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        this.hidden[box.checked ? "delete" : "add"](kind);
        this.redraw();
      });
      return h("label", {}, box, title);
    });
    section.querySelector("#kinds").append(...boxes);
  }

  clear() {
    this.events = [];
    this.most = ROWS;
    this.redraw();
  }

  // The time that is looked at, null for now: events after it are dimmed, those before it shown.
  lookAt(t) {
    this.until = t;
    this.isMoved = true;
    this.redraw();
  }

  add(event) {
    event.row = this.added += 1;
    if (event.t_ns == null) event.t_ns = Date.now() * 1e6;
    let index = this.events.length;
    while (index > 0 && this.events[index - 1].t_ns > event.t_ns) index -= 1;
    this.events.splice(index, 0, event);
    if (this.events.length > KEPT + ROWS) this.events.splice(0, ROWS);
    this.redraw();
  }

  #draw() {
    const events = this.events.filter(this.has);
    this.shown(events);
    const rows = [];
    let from = null;
    for (const event of together(events)) {
      if (event.kind === "fault") from = { event, row: null, effects: [] };
      const isEffect = from && event !== from.event && EFFECTS.has(event.kind) && event.t_ns - from.event.t_ns < NEAR_NS;
      if (isEffect) from.effects.push(event);
      if (this.hidden.has(kindOf(event))) continue;
      const since = from && event !== from.event && event.t_ns - from.event.t_ns < NEAR_NS ? `+${moment(event.t_ns - from.event.t_ns)}` : "";
      rows.push({ event, since, of: event.kind === "fault" || isEffect ? from : null });
    }
    // Whatever comes meanwhile, a row that has the focus stays.
    const held = this.list.contains(document.activeElement) ? d3.select(document.activeElement.closest("li")).datum().event : null;
    const first = held ? rows.findIndex(({ event }) => event.row === held.row) : rows.length;
    const shown = Math.max(this.most, rows.length - first);
    d3.select(this.list).selectChildren()
      .data(rows.slice(-shown).reverse(), ({ event }) => event.row)
      .join((enter) => enter.append(({ event }) => this.#row(event)))
      .classed("later", ({ event }) => this.until != null && event.t_ns > this.until)
      .attr("hidden", ({ event, of }) => (of && event !== of.event && !this.open.has(of.event.row) ? "" : null))
      .each(({ event, of }, place, items) => this.#tell(items[place], event, of))
      .select(".since").text(({ since }) => since);
    this.older.hidden = rows.length <= shown;
    if (!this.isMoved) return;
    this.isMoved = false;
    const newest = this.list.querySelector("li:not(.later):not([hidden])");
    this.list.parentElement.scrollTop = newest ? newest.offsetTop : this.list.scrollHeight;
  }

  // Bring a row up to date: of a fault what it did, with a button that shows it one by one, of a burst
  // its nodes.
  #tell(item, event, of) {
    if (event.nodes && item.nodes !== event.nodes.length) {
      item.nodes = event.nodes.length;
      item.querySelector(".what").replaceChildren(...this.#what(event));
    }
    if (event.kind !== "fault") return;
    const box = item.querySelector(".effects");
    const [text, isOpen] = [summary(of.effects), this.open.has(event.row)];
    if (box.dataset.text === text + isOpen) return;
    box.dataset.text = text + isOpen;
    const toggle = () => {
      this.open[isOpen ? "delete" : "add"](event.row);
      this.redraw();
    };
    box.replaceChildren(...(text ? [`${text} `, h("button", { class: "link", "aria-expanded": String(isOpen), onclick: toggle }, isOpen ? "Hide" : "One by one")] : []));
  }

  #what(event) {
    const { subject, text } = said(event);
    return subject ? [h("button", { class: "link", onclick: () => this.pick(subject) }, subject), " ", text] : [text];
  }

  #row(event) {
    const at = h("button", { class: "link", title: "Show the fabric at this time", onclick: () => this.goTo(event.t_ns) }, clock(event.t_ns));
    return h("li", { class: said(event).tone ?? "", "data-kind": event.kind },
      h("time", {}, at),
      h("span", { class: "since" }),
      h("span", { class: "kind" }, event.kind),
      h("span", { class: "what" }, ...this.#what(event)),
      event.kind === "fault" ? h("span", { class: "effects" }) : null);
  }
}

const EFFECTS = new Set(["carrier", "session", "routes", "node"]);
const APART_NS = 1e9;

// Events with those of many nodes as one: routes that were changed in a burst, states of one sample.
export function together(events) {
  const found = [];
  const open = new Map();
  for (const event of events) {
    const key = event.kind === "routes" ? "routes" : event.kind === "node" ? `node ${event.state}` : null;
    if (event.kind === "fault") open.clear();
    const last = key && open.get(key);
    if (last && event.t_ns - last.t_ns < APART_NS) {
      last.nodes.push(event.node);
      for (const name of ["changes", "removed"]) if (name in event) last[name] += event[name];
      if (event.until_ns > last.until_ns) last.until_ns = event.until_ns;
      continue;
    }
    if (!key) {
      found.push(event);
      continue;
    }
    const made = { ...event, nodes: [event.node] };
    open.set(key, made);
    found.push(made);
  }
  return found;
}

// What a fault did, in a few words.
function summary(effects) {
  const number = (kind, test) => d3.sum(effects.filter((event) => event.kind === kind && test(event)), ({ nodes }) => (nodes ? new Set(nodes).size : 1));
  const switches = new Set(effects.filter(({ kind }) => kind === "routes").flatMap(({ nodes }) => nodes)).size;
  const parts = [
    [number("carrier", ({ carrier }) => !carrier), "port lost carrier", "ports lost carrier"],
    [number("carrier", ({ carrier }) => carrier), "port has carrier again", "ports have carrier again"],
    [number("session", ({ up }) => !up), "session down", "sessions down"],
    [number("session", ({ up }) => up), "session up", "sessions up"],
    [switches, "switch changed routes", "switches changed routes"],
  ];
  return parts.filter(([many]) => many).map(([many, one, several]) => `${count(many)} ${many === 1 ? one : several}`).join(", ");
}

const MOST_NAMED = 3;

function several(nodes) {
  const names = [...new Set(nodes)];
  const left = names.length - MOST_NAMED;
  return left > 0 ? `${names.slice(0, MOST_NAMED).join(", ")} and ${count(left)} more` : names.join(", ");
}

const NODE_TONES = { ok: "good", rerouted: "", degraded: "warn", down: "bad" };

export function said(event) {
  switch (event.kind) {
    case "carrier":
      return { tone: event.carrier ? "good" : "bad", subject: event.link, text: `${event.node} ${event.carrier ? "has carrier again" : "lost carrier"}` };
    case "session":
      return {
        tone: event.up ? "good" : "bad", subject: event.node,
        text: `BGP with ${event.peer ?? event.neighbour} ${event.up ? "established" : `down: ${event.detail || event.cause}`}`,
      };
    case "routes":
      if (event.nodes?.length > 1) return { tone: "", text: `${several(event.nodes)}: kernels changed ${routes(event)}${event.until_ns > event.t_ns ? ` in ${duration(event.until_ns - event.t_ns)}` : ""}` };
      return { tone: "", subject: event.node, text: `kernel changed ${routes(event)}${event.until_ns > event.t_ns ? ` in ${duration(event.until_ns - event.t_ns)}` : ""}` };
    case "node":
      if (event.nodes?.length > 1) return { tone: NODE_TONES[event.state], text: `${several(event.nodes)}: ${STATES[event.state]}` };
      return { tone: NODE_TONES[event.state], subject: event.node, text: condition(event) };
    case "fault":
      return { tone: event.begins ? "bad" : "good", subject: event.subject, text: `${event.fault} ${event.begins ? "begins" : "is undone"}${event.number ? ` (fault ${event.number})` : ""}` };
    case "scheme":
      return { tone: "", text: `flows are spread by ${event.scheme.kind}` };
    case "job":
      return event.outcome
        ? { tone: { valid: "good", stopped: "", disturbed: "warn" }[event.outcome] ?? "failed", text: `${traffic(event)} has ended: ${event.outcome}` }
        : { tone: "", text: `${traffic(event)} begins to send` };
    case "use":
      return { tone: "", text: event.user ? `${event.user} begins (process ${event.pid})` : "the lab is free again" };
    case "gap":
      return { tone: "warn", text: `${count(event.missed)} events were too many for this connection` };
    default:
      return { tone: "warn", text: event.text ?? JSON.stringify(event) };
  }
}

function traffic({ pattern, ranks }) {
  return pattern === "probes" ? `a run of ${count(ranks)} probe flows` : `${pattern} of ${ranks} ranks`;
}

function routes({ changes, removed }) {
  const total = `${count(changes)} route${changes === 1 ? "" : "s"}`;
  return removed ? `${total}, ${count(removed)} of them removed` : total;
}

export function condition({ state, ports_down: ports, sessions_down: sessions, routes_incomplete: narrow }) {
  if (state === "ok") return "as planned";
  const parts = [];
  if (ports) parts.push(`${count(ports)} port${ports === 1 ? "" : "s"} without carrier`);
  if (sessions) parts.push(`${count(sessions)} session${sessions === 1 ? "" : "s"} down`);
  if (narrow) parts.push(`${count(narrow)} route${narrow === 1 ? "" : "s"} missing or narrower than planned`);
  return `${state}: ${parts.join(", ")}`;
}
