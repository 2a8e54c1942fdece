// The events of the last minutes as lanes over time: faults, carriers, sessions, routes, and packets
// lost. A click goes to that instant.

import { h } from "./elements.js";
import { bandsOf } from "./bands.js";
import { clock } from "./format.js";
import { paced } from "./pace.js";
import { count, counted } from "./quantities.js";

const WINDOW_NS = 180e9;
const LANES = [["fault", "fault"], ["carrier", "carrier"], ["session", "session"], ["routes", "routes"], ["lost", "lost"]];
const BINS = 360; // of the window; marks in one are one mark

export class Lanes {
  // `goTo`: an instant was clicked.
  constructor(element, goTo) {
    this.element = element;
    this.losses = [];
    this.outages = [];
    this.events = [];
    this.newest = 0;
    this.at = null;
    this.tracks = new Map(LANES.map(([kind, title]) => {
      const track = h("div", { class: "track" });
      element.append(h("div", { class: "lane" }, h("span", { class: "muted" }, title), track));
      track.addEventListener("click", (event) => {
        const { left, width } = track.getBoundingClientRect();
        goTo(this.newest - WINDOW_NS * (1 - (event.clientX - left) / width));
      });
      return [kind, track];
    }));
    this.redraw = paced(() => this.#draw());
  }

  // A sample: the time now, and packets/s that links and queues lost.
  sampled(t, lost = 0) {
    this.newest = t;
    if (lost) this.losses.push({ t_ns: t, lost });
    this.losses = this.losses.filter((each) => t - each.t_ns < WINDOW_NS);
    this.redraw();
  }

  // Traffic of the page was measured: when each of its flows was out.
  measured({ zero_ns: zero, run }) {
    this.outages = run.flows.flatMap((flow) => (flow.outages ?? []).map(([from, until, lost]) => ({
      t_ns: zero + from, until: zero + (until ?? run.end_ns), lost, name: flow.name,
    })));
    this.redraw();
  }

  // All events that are kept, in order of time.
  show(events) {
    this.events = events;
    this.redraw();
  }

  lookAt(t) {
    this.at = t;
    this.redraw();
  }

  #draw() {
    const { newest } = this;
    if (!newest) return;
    const begin = newest - WINDOW_NS;
    const place = (t) => (100 * (t - begin)) / WINDOW_NS;
    const recent = this.events.filter((event) => event.t_ns >= begin);
    for (const [kind, track] of this.tracks) {
      const marks = kind === "fault" ? this.#faults(begin)
        : kind === "lost" ? this.#lost(begin)
          : binned(recent.filter((event) => event.kind === kind), begin);
      const made = marks.map(({ t, until, tone, text }) => {
        const mark = h("i", { class: tone, title: `${clock(t)}: ${text}` });
        mark.style.left = `${Math.max(0, place(t))}%`;
        mark.style.width = until ? `max(3px, ${place(until) - Math.max(0, place(t))}%)` : "3px";
        return mark;
      });
      if (this.at) {
        const line = h("i", { class: "at" });
        line.style.left = `${place(this.at)}%`;
        made.push(line);
      }
      track.replaceChildren(...made);
    }
  }

  #lost(begin) {
    const out = d3.groups(this.outages.filter((outage) => outage.until >= begin), binOf(begin)).map(([, flows]) => ({
      t: d3.min(flows, (outage) => outage.t_ns), until: d3.max(flows, (outage) => outage.until), tone: "bad",
      text: `${counted(d3.sum(flows, (outage) => outage.lost), "packet")} of ${counted(new Set(flows.map(({ name }) => name)).size, "flow")} lost`,
    }));
    return [...out, ...this.losses.map(({ t_ns: t, lost }) => ({ t, tone: "bad", text: `${count(Math.round(lost))} packets/s lost` }))];
  }

  #faults(begin) {
    const faults = this.events.filter((event) => event.kind === "fault");
    return bandsOf(faults, this.newest, begin).filter(([, until]) => until >= begin).map(([from, until]) => {
      const event = faults.find((each) => each.t_ns === from);
      return { t: from, until, tone: "bad", text: event ? `${event.fault} of ${event.subject}` : "a fault" };
    });
  }
}

function binOf(begin) {
  return ({ t_ns: t }) => Math.floor((BINS * (t - begin)) / WINDOW_NS);
}

// Events so close to each other that they would be drawn on each other, as one.
function binned(events, begin) {
  const bins = d3.groups(events, binOf(begin));
  return bins.map(([, [first, ...more]]) => ({
    t: first.t_ns, tone: toneOf(first), text: `${first.link ?? first.node}${more.length ? ` and ${more.length} more` : ""}`,
  }));
}

function toneOf({ kind, carrier, up }) {
  if (kind === "carrier") return carrier ? "good" : "bad";
  if (kind === "session") return up ? "good" : "bad";
  return "plain";
}
