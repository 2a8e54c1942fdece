// The list of events, newest first, in the order of their own times: a session's line of the log
// comes later than the carrier's event that caused it. Times count from the fault before them.

import { h } from "./elements.js";
import { clock, moment } from "./format.js";
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
  constructor(section, pick) {
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
    const rows = [];
    let from = null;
    for (const event of this.events) {
      if (event.kind === "fault") from = event;
      if (this.hidden.has(kindOf(event))) continue;
      const since = from && event !== from && event.t_ns - from.t_ns < NEAR_NS ? `+${moment(event.t_ns - from.t_ns)}` : "";
      rows.push({ event, since });
    }
    // Whatever comes meanwhile, a row that has the focus stays.
    const held = this.list.contains(document.activeElement) ? d3.select(document.activeElement.closest("li")).datum().event : null;
    const first = held ? rows.findIndex(({ event }) => event === held) : rows.length;
    const shown = Math.max(this.most, rows.length - first);
    d3.select(this.list).selectChildren()
      .data(rows.slice(-shown).reverse(), ({ event }) => event.row)
      .join((enter) => enter.append(({ event }) => this.#row(event)))
      .classed("later", ({ event }) => this.until != null && event.t_ns > this.until)
      .select(".since").text(({ since }) => since);
    this.older.hidden = rows.length <= shown;
    if (!this.isMoved) return;
    this.isMoved = false;
    const newest = this.list.querySelector("li:not(.later)");
    this.list.parentElement.scrollTop = newest ? newest.offsetTop : this.list.scrollHeight;
  }

  #row(event) {
    const { tone = "", subject, text } = said(event);
    const about = subject
      ? h("button", { class: "link", onclick: () => this.pick(subject) }, subject)
      : null;
    return h("li", { class: tone, "data-kind": event.kind },
      h("time", {}, clock(event.t_ns)),
      h("span", { class: "since" }),
      h("span", { class: "kind" }, event.kind),
      h("span", { class: "what" }, about, about ? " " : "", text));
  }
}

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
      return { tone: "", subject: event.node, text: `kernel changed ${routes(event)}${event.until_ns > event.t_ns ? ` in ${duration(event.until_ns - event.t_ns)}` : ""}` };
    case "node":
      return { tone: { ok: "good", degraded: "warn", down: "bad" }[event.state], subject: event.node, text: condition(event) };
    case "fault":
      return { tone: event.begins ? "bad" : "good", subject: event.subject, text: `${event.fault} ${event.begins ? "begins" : "is undone"}${event.number ? ` (fault ${event.number})` : ""}` };
    case "scheme":
      return { tone: "", text: `flows are spread by ${event.scheme.kind}` };
    case "job":
      return event.outcome
        ? { tone: { valid: "good", stopped: "", disturbed: "warn" }[event.outcome] ?? "bad", text: `${traffic(event)} has ended: ${event.outcome}` }
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
