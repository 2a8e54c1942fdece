// The flows as a table to sort, filter and pick from.

import { h } from "./elements.js";
import { count, counted, duration, ratio, size } from "./quantities.js";

const MOST_ROWS = 200;
const NAME = { title: "flow", value: ({ name }) => Number(name.replace(/\D/g, "")), text: ({ name }) => name };
const ENDS = { title: "from, to", value: ({ source }) => source, text: ({ source, destination }) => `${source} → ${destination}` };

// The first column by which flows are sorted is the fourth.
const PROBES = [
  NAME,
  ENDS,
  { title: "events", number: true, value: ({ affected }) => affected, hint: "events that affected it" },
  { title: "lost", number: true, value: ({ lost }) => lost, hint: "packets" },
  { title: "outage, lab", number: true, value: (flow) => flow.outage_ns, text: (flow) => (flow.outages.length ? known(flow.outage_ns, flow) : "-"), hint: "all outages together" },
  { title: "convergence, lab", number: true, value: (flow) => flow.convergence_ns ?? -1, text: (flow) => (flow.convergence_ns == null ? "-" : known(flow.convergence_ns, flow)), hint: "of the worst event" },
  { title: "reordered", number: true, value: ({ reordered }) => reordered, hint: "packets" },
];
const QUEUE_PAIR = { title: "queue pair", value: ({ dest_qp: qp }) => qp, text: ({ sport, dest_qp: qp }) => `${qp}, port ${sport}`, hint: "number at the destination, UDP source port" };
const SENT = [
  NAME,
  ENDS,
  QUEUE_PAIR,
  { title: "sent again", number: true, value: ({ retransmitted }) => retransmitted, hint: "packets" },
  { title: "marked", number: true, value: ({ ce }) => ce, hint: "packets that came with a congestion mark" },
  { title: "packets", number: true, value: ({ packets }) => packets, hint: "sent, those sent again included" },
  { title: "bytes", number: true, value: ({ payload_bytes: sent }) => sent, text: ({ payload_bytes: sent }) => size(sent), hint: "payload of all its messages" },
  { title: "RTT p99", number: true, value: ({ rtt_p99_ns: ns }) => ns ?? Infinity, text: ({ rtt_p99_ns: ns }) => (ns == null ? "-" : duration(ns)), hint: "of the lab, queues and batches of ACKs included" },
];
const SIMULATED = [
  NAME,
  ENDS,
  QUEUE_PAIR,
  { title: "slowest", number: true, value: ({ longest_ns: ns }) => ns ?? Infinity, text: ({ longest_ns: ns }) => timeOf(ns), hint: "completion time of its slowest transfer" },
  { title: "slowdown", number: true, value: ({ slowdown }) => slowdown ?? Infinity, text: ({ slowdown }) => (slowdown == null ? "-" : ratio(slowdown)), hint: "of that transfer, over the least time alone on the path" },
  { title: "bytes", number: true, value: ({ payload_bytes: sent }) => sent, text: ({ payload_bytes: sent }) => size(sent), hint: "payload of all its transfers" },
  { title: "transfers", number: true, value: ({ transfers }) => transfers },
  { title: "over at", number: true, value: ({ over_ns: ns }) => ns ?? Infinity, text: ({ over_ns: ns }) => timeOf(ns) },
  { title: "job", value: ({ job }) => job },
];

export class FlowTable {
  constructor(section, choose) {
    this.choose = choose;
    this.rows = section.querySelector("tbody");
    this.head = section.querySelector("thead tr");
    this.note = section.querySelector("#flows-shown");
    this.which = section.querySelector("#flows-are");
    this.words = section.querySelector("input[type=search]");
    this.affected = section.querySelector("input[type=checkbox]");
    this.words.addEventListener("input", () => this.#draw());
    this.affected.addEventListener("change", () => this.#draw());
  }

  start({ flows, flows_are: which }) {
    this.flows = flows;
    const [first] = flows;
    this.columns = first && "transfers" in first ? SIMULATED : first && "dest_qp" in first ? SENT : PROBES;
    this.by = this.columns[3];
    this.down = true;
    this.which.textContent = which;
    this.affected.checked = flows.some(({ lost }) => lost);
    this.affected.closest("label").hidden = this.columns !== PROBES;
    this.#draw();
  }

  mark(flow) {
    this.marked = flow;
    this.#draw();
  }

  filter(words) {
    this.words.value = words;
    if (words) this.affected.checked = false;
    this.#draw();
  }

  #draw() {
    const words = this.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.flows.filter((flow) => (!this.affected.checked || flow.affected || flow.lost) && matches(flow, words));
    const sorted = d3.sort(found, (a, b) => (this.down ? -1 : 1) * d3.ascending(this.by.value(a), this.by.value(b)));
    this.head.replaceChildren(...this.columns.map((column) => this.#header(column)));
    this.rows.replaceChildren(...sorted.slice(0, MOST_ROWS).map((flow) => this.#row(flow)));
    const shown = found.length > MOST_ROWS ? `the first ${MOST_ROWS} of ${count(found.length)} found,` : count(found.length);
    this.note.textContent = `${shown} of ${counted(this.flows.length, "flow")}`;
  }

  #header(column) {
    const isBy = column === this.by;
    const sort = () => {
      this.down = isBy ? !this.down : true;
      this.by = column;
      this.#draw();
      this.head.children[this.columns.indexOf(column)].firstChild.focus();
    };
    return h("th", { scope: "col", class: column.number ? "n" : null, title: column.hint, "aria-sort": isBy ? (this.down ? "descending" : "ascending") : null },
      h("button", { class: "link", onclick: sort }, column.title, isBy ? (this.down ? " ▼" : " ▲") : ""));
  }

  #row(flow) {
    const isMarked = flow === this.marked;
    const pick = () => {
      this.choose(isMarked ? null : flow);
      [...this.rows.querySelectorAll("button")].find((button) => button.textContent === flow.name)?.focus();
    };
    return h("tr", { "data-chosen": isMarked }, ...this.columns.map((column, place) => {
      const text = column.text?.(flow) ?? (column.number ? count(column.value(flow)) : column.value(flow));
      return h("td", { class: column.number ? "n" : null, "data-title": column.title }, place ? text : h("button", { class: "link", "aria-pressed": String(isMarked), onclick: pick }, text));
    }));
  }
}

export function timeOf(ns) {
  return ns == null ? "never" : duration(ns);
}

// A time, or that it is too short to be told from nothing.
function known(ns, { resolution_ns: resolution }) {
  return ns > resolution ? duration(ns) : `< ${duration(resolution)}`;
}

// Each of the words is the flow's name, a part of an end's name, or a link or node that it crosses.
function matches({ name, source, destination, path, passed }, words) {
  return words.every((word) => name === word || source.includes(word) || destination.includes(word) || path.includes(word) || passed.has(word));
}
