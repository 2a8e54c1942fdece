// The flows as a table to sort, filter and pick from.

import { h } from "./elements.js";
import { count, span } from "./format.js";

const MOST_ROWS = 200;
const COLUMNS = [
  { title: "flow", value: ({ name }) => Number(name.replace(/\D/g, "")), text: ({ name }) => name },
  { title: "from, to", value: ({ source }) => source, text: ({ source, destination }) => `${source} → ${destination}` },
  { title: "events", number: true, value: ({ affected }) => affected, hint: "events that affected it" },
  { title: "lost", number: true, value: ({ lost }) => lost, hint: "packets" },
  { title: "outage", number: true, value: (flow) => flow.outage_ns, text: (flow) => (flow.outages.length ? known(flow.outage_ns, flow) : "-"), hint: "all outages together" },
  { title: "convergence", number: true, value: (flow) => flow.convergence_ns ?? -1, text: (flow) => (flow.convergence_ns == null ? "-" : known(flow.convergence_ns, flow)), hint: "of the worst event" },
  { title: "reordered", number: true, value: ({ reordered }) => reordered, hint: "packets" },
];

export class FlowTable {
  constructor(section, choose) {
    this.choose = choose;
    this.rows = section.querySelector("tbody");
    this.head = section.querySelector("thead tr");
    this.note = section.querySelector("#flows-shown");
    this.words = section.querySelector("input[type=search]");
    this.affected = section.querySelector("input[type=checkbox]");
    this.by = COLUMNS[3];
    this.down = true;
    this.words.addEventListener("input", () => this.#draw());
    this.affected.addEventListener("change", () => this.#draw());
  }

  start(flows) {
    this.flows = flows;
    this.affected.checked = flows.some(({ lost }) => lost);
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
    const words = this.words.value.trim().toLowerCase();
    const found = this.flows.filter((flow) => (!this.affected.checked || flow.affected || flow.lost) && matches(flow, words));
    const sorted = d3.sort(found, (a, b) => (this.down ? -1 : 1) * d3.ascending(this.by.value(a), this.by.value(b)));
    this.head.replaceChildren(...COLUMNS.map((column) => this.#header(column)));
    this.rows.replaceChildren(...sorted.slice(0, MOST_ROWS).map((flow) => this.#row(flow)));
    const first = found.length > MOST_ROWS ? `the first ${MOST_ROWS} of ` : "";
    this.note.textContent = `${first}${count(found.length)} of ${count(this.flows.length)} flows`;
  }

  #header(column) {
    const isBy = column === this.by;
    const sort = () => {
      this.down = isBy ? !this.down : true;
      this.by = column;
      this.#draw();
      this.head.children[COLUMNS.indexOf(column)].firstChild.focus();
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
    return h("tr", { "data-chosen": isMarked }, ...COLUMNS.map((column, place) => {
      const text = column.text ? column.text(flow) : count(column.value(flow));
      return h("td", { class: column.number ? "n" : null }, place ? text : h("button", { class: "link", "aria-pressed": String(isMarked), onclick: pick }, text));
    }));
  }
}

// A time, or that it is too short to be told from nothing.
function known(ns, { resolution_ns: resolution }) {
  return ns > resolution ? span(ns) : `< ${span(resolution)}`;
}

function matches({ name, source, destination, path, passed }, words) {
  if (!words) return true;
  return name === words || source.includes(words) || destination.includes(words) || path.includes(words) || passed.has(words);
}
