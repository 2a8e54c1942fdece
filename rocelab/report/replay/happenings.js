// The list of what happened: faults, stages of convergence, changes of routes, losses of flows; all events of a lab
// that was watched.

import { h } from "./elements.js";
import { moment } from "./format.js";
import { count, duration } from "./quantities.js";
import { KINDS, kindOf, said } from "./timeline.js";

const AROUND = 150; // rows before and after the instant that are in the page
const TITLES = { ...KINDS, stage: "stages", loss: "losses" };

export class Happenings {
  // `chooser`: what chooses a node or a link of that name, or its name.
  constructor(section, { runs, goTo, chooser }) {
    this.list = section.querySelector("ol");
    this.goTo = goTo;
    this.chooser = chooser;
    this.hidden = new Set();
    const there = new Set(runs.flatMap(eventsOf).map(kindOf));
    section.querySelector("fieldset").append(...Object.entries(TITLES).filter(([kind]) => there.has(kind)).map(([kind, title]) => {
      const box = h("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        this.hidden[box.checked ? "delete" : "add"](kind);
        this.#filter();
        this.at(this.instant);
      });
      return h("label", {}, box, title);
    }));
  }

  start(run) {
    this.all = d3.sort(eventsOf(run), (event) => event.t_ns);
    let from = null;
    for (const event of this.all) {
      if (event.kind === "fault") from = event.t_ns;
      event.since = from != null && event.kind !== "fault" ? event.t_ns - from : null;
    }
    this.#filter();
  }

  // The instant of the next event after, or the one before, an instant; null without one.
  beside(instant, direction) {
    const times = this.shown.map((event) => event.t_ns);
    const place = direction > 0 ? d3.bisectRight(times, instant) : d3.bisectLeft(times, instant) - 1;
    return times[place] ?? null;
  }

  at(instant) {
    this.instant = instant;
    const last = this.#last(instant);
    const first = Math.max(0, last - AROUND);
    const rows = this.shown.slice(first, last + AROUND).map((event, place) => this.#row(event, first + place === last));
    this.list.replaceChildren(...rows);
    const marked = rows[last - first];
    if (marked) this.list.scrollTop = marked.offsetTop - this.list.clientHeight / 2;
    else this.list.scrollTop = 0;
  }

  #filter() {
    this.shown = this.all.filter((event) => !this.hidden.has(kindOf(event)));
  }

  #last(instant) {
    return d3.bisector((event) => event.t_ns).right(this.shown, instant) - 1;
  }

  #row(event, isNow) {
    const { tone = "", subject, text } = textOf(event);
    return h("li", { class: tone, "data-kind": event.kind, "aria-current": isNow ? "true" : null },
      h("button", { class: "link", title: "Show the fabric at this instant", onclick: () => this.goTo(event.t_ns) }, moment(event.t_ns)),
      h("span", { class: "since" }, event.since == null ? "" : `+${moment(event.since)}`),
      h("span", {}, subject ? this.chooser(subject) : "", subject ? " " : "", text));
  }
}

function eventsOf(run) {
  return [...run.events, ...run.flows.flatMap(lossesOf)];
}

function lossesOf(flow) {
  return flow.outages.flatMap(([begin, end, lost]) => [
    { t_ns: begin, kind: "loss", flow, begins: true },
    ...(end == null ? [] : [{ t_ns: end, kind: "loss", flow, begins: false, lost, lasted: end - begin }]),
  ]);
}

function textOf(event) {
  if (event.kind === "stage") return { subject: event.node, text: event.text };
  if (event.kind !== "loss") return said(event);
  const { flow, begins, lost, lasted } = event;
  return begins
    ? { tone: "bad", text: `flow ${flow.name} loses its first packet` }
    : { tone: "good", text: `flow ${flow.name} arrives again, ${count(lost)} lost in ${duration(lasted)}` };
}
