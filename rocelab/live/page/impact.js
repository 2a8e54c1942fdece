// The strip Impact: what the traffic of the page felt of faults. While it is sent, packets per 10 ms
// as its agents count them; then packets and losses per 10 ms, the flows that were out, and what each
// switch's BGP did, all on one axis of time.

import { h } from "./elements.js";
import { bandsOf, drawBands } from "./bands.js";
import { clock, style } from "./format.js";
import { count, counted, duration, tick, timeTicks } from "./quantities.js";
import { longestText, outageText } from "./outages.js";
import { append, columnsOf, stepPlots } from "./packets.js";
import { get } from "./requests.js";
import { S, plotsOf } from "./series.js";

const HEIGHT = 42;
const LOW = 36; // of more than two plots
const TICKS = 24; // the height of the axis of time, which the last plot has
const AXIS = 64; // pixels left of the plots
const BEFORE_NS = 50e6; // that is shown before a fault
const LEAST_NS = 200e6;
const MOST_OUTAGES = 200;
const MOST_LANES = 12;
const LIVE_S = 60;
const VERDICTS = {
  valid: ["ok", "Undisturbed and valid."],
  disturbed: ["degraded", "Disturbed: not a measurement of the lab as planned."],
  invalid: ["bad", "Invalid: this machine could not carry it, its figures do not count."],
  failed: ["bad", "Failed."],
};

export class Impact {
  // `pick`: what chooses a switch of that name. `measured` is told what was measured.
  constructor(section, { pick, measured }) {
    this.section = section;
    this.verdict = section.querySelector("#verdict");
    this.views = section.querySelector("#views");
    this.plotted = section.querySelector("#plotted");
    this.lanes = section.querySelector("#lanes");
    this.listed = section.querySelector("#outages");
    this.pick = pick;
    this.measured = measured;
    this.plots = [];
    this.live = [[], [], [], []];
    section.querySelector("#hide").addEventListener("click", () => { section.hidden = true; });
    new ResizeObserver(() => this.#resize()).observe(this.plotted);
  }

  // The newest traffic, as GET /traffic has it.
  show(traffic) {
    const before = this.traffic;
    this.traffic = traffic;
    if (!traffic?.state) return;
    if (traffic.state === "running") {
      if (before?.state !== "running") this.#begin();
      return;
    }
    if (traffic.state !== before?.state) this.#end();
  }

  // Packets of all traffic in steps of 10 ms, each with `t_ns` of the first, as the server reads them.
  stepped(steps) {
    if (this.traffic?.state !== "running" || !steps.length) return;
    for (const each of steps) append(this.live, columnsOf(each));
    const old = d3.bisect(this.live[0], this.live[0].at(-1) - LIVE_S);
    for (const row of this.live) row.splice(0, old);
    this.#drawLive();
  }

  // A fault began or ended.
  happened(event) {
    this.faults ??= [];
    this.faults.push(event);
    if (this.traffic?.state === "running") this.plots[0]?.redraw();
  }

  #begin() {
    this.section.hidden = false;
    this.impact = null;
    this.live = [[], [], [], []];
    this.verdict.className = "";
    this.verdict.textContent = "Sending. Choose a link or a switch and break it: the outage of each flow is here when the traffic ends.";
    this.views.replaceChildren();
    this.lanes.replaceChildren();
    this.listed.replaceChildren();
    const bands = () => bandsOf(this.faults ?? [], (this.live[0].at(-1) ?? 0) * S);
    const time = (s, [first, second]) => clock(s * S, second - first < 1 ? 1 : 0);
    this.#replace(stepPlots(this.live, this.traffic.kind).map((plot) => ({ ...plot, bands, time })));
  }

  #drawLive() {
    stepPlots(this.live, this.traffic.kind).forEach(({ data }, place) => this.plots[place]?.setData(data));
  }

  async #end() {
    const { state } = this.traffic;
    if (state === "stopped" || state === "failed") {
      this.#clear();
      return;
    }
    try {
      this.impact = await get("/traffic/impact");
    } catch {
      this.#clear();
      return;
    }
    this.section.hidden = false;
    this.measured(this.impact);
    const { run } = this.impact;
    const [kind, text] = VERDICTS[state];
    this.verdict.className = kind;
    this.verdict.replaceChildren(h("b", {}, text), " ", h("span", { class: "said" }, this.#sentence()), ...this.#reasons());
    const bands = () => bandsOf(run.events.filter((event) => event.kind === "fault"), run.end_ns, run.begin_ns);
    this.#replace(this.#plots().map((plot) => ({ ...plot, bands, time: (s, all) => since(s, all) })));
    this.#list();
    this.#offer();
  }

  // A job's own figures have no packets per 10 ms: those that its agents counted take the place of its
  // coarser rate.
  #plots() {
    const { run, steps, zero_ns: zero } = this.impact;
    const plots = plotsOf(run, null);
    return steps && run.jobs.length ? [...stepPlots(columnsOf(steps, zero), "job"), ...plots.slice(1)] : plots;
  }

  #clear() {
    this.section.hidden = true;
    this.#replace([]);
  }

  // What happened, in a sentence.
  #sentence() {
    const { run, outages, said } = this.impact;
    const flows = new Set(outages.map(({ flow }) => flow));
    const longest = d3.greatest(outages.filter((outage) => outage.out_ns != null), (outage) => outage.out_ns);
    if (run.jobs.length) {
      const out = flows.size ? `${flows.size} of ${counted(run.flows.length, "flow")} ${longest ? longestText(longest) : "out to the end"}.` : "No flow was out.";
      return [out, ...said].join(" ");
    }
    const sent = d3.sum(run.flows, (flow) => flow.sent);
    const lost = d3.sum(run.flows, (flow) => flow.lost);
    if (!lost) return `${counted(sent, "packet")} of ${counted(run.flows.length, "flow")} sent, none lost.`;
    const out = longest ? `, ${longestText(longest)}` : "";
    return `${flows.size} of ${counted(run.flows.length, "flow")} lost packets${out}; ${count(lost)} of ${counted(sent, "packet")} lost.`;
  }

  #reasons() {
    const by = this.impact.disturbed.map(({ text }) => h("div", { class: "muted" }, `Disturbed by ${text}.`));
    const { problems } = this.traffic;
    const why = problems.length
      ? [h("details", { class: "muted" }, h("summary", {}, "Why it is invalid"), ...problems.map((text) => h("div", {}, text)))]
      : [];
    return [...by, ...why];
  }

  #list() {
    const { outages } = this.impact;
    const rows = outages.slice(0, MOST_OUTAGES).map((outage) => h("li", {},
      h("button", { class: "link", title: `${outage.source} to ${outage.destination}, ${outage.event ? `at ${outage.event}` : "at no fault"}`, onclick: () => this.#zoom(outage.t_ns - BEFORE_NS, outage.t_ns + Math.max(LEAST_NS, outage.out_ns ?? 0)) }, outage.flow),
      `: ${outageText(outage)} `,
      h("span", { class: "muted ends" }, `${outage.source} → ${outage.destination}`)));
    const left = outages.length - rows.length;
    this.listed.replaceChildren(
      h("h3", {}, outages.length ? "Flows that were out" : "No flow was out"), h("ol", {}, ...rows),
      left > 0 ? h("p", { class: "muted" }, `and ${count(left)} more, in result.json`) : "");
  }

  // A view of each event, and of all.
  #offer() {
    const { run, outages, switches } = this.impact;
    const faults = run.events.filter((event) => event.kind === "fault");
    const views = [...new Map(faults.map((event) => [event.event, event])).values()].map((event) => {
      const next = faults.find((other) => other.t_ns > event.t_ns)?.t_ns ?? run.end_ns;
      const inside = (t) => t != null && t >= event.t_ns && t < next;
      const last = d3.max([
        ...outages.filter(({ t_ns: t }) => t === event.t_ns).map(({ t_ns: t, out_ns: out }) => t + (out ?? 0)),
        ...switches.flatMap(({ kernel_ns: kernel }) => (inside(kernel) ? [kernel] : [])),
      ]) ?? event.t_ns;
      const show = () => this.#zoom(event.t_ns - BEFORE_NS, Math.max(event.t_ns + LEAST_NS, last + BEFORE_NS));
      return [`${event.fault} ${event.begins ? "begins" : "ends"}`, show];
    });
    views.push(["all", () => this.#zoom(run.begin_ns, run.end_ns)]);
    this.views.replaceChildren(...views.map(([text, show]) => h("button", { onclick: show }, text)));
    views[0][1]();
  }

  #zoom(low, high) {
    this.window = [low, high];
    for (const plot of this.plots) plot.setScale("x", { min: low / S, max: high / S });
    this.#drawLanes();
  }

  // A lane for each switch: down noticed or withdrawn, FRR's hold, and until the kernel has the route.
  #drawLanes() {
    if (!this.impact) return;
    const [low, high] = this.window;
    const { switches, hold_ns: hold } = this.impact;
    const place = (t) => (100 * (t - low)) / (high - low);
    const within = switches.filter((each) => [each.detected_ns, each.kernel_ns].some((t) => t != null && t >= low && t <= high));
    const lanes = d3.groups(within, ({ node }) => node).slice(0, MOST_LANES).map(([node, steps]) => h("div", { class: "lane" },
      h("button", { class: "link", onclick: () => this.pick(node) }, node),
      h("div", { class: "track" }, ...steps.flatMap((step) => marksOf(step, hold).map((mark) => mark1(mark, place))))));
    const key = [["noticed", "down or up noticed"], ["withdrawn", "withdrawn or announced by a neighbour"], ["hold", `FRR's hold of ${duration(hold)}`], ["decide", "best path decided"], ["write", "routes changed"]];
    this.lanes.replaceChildren(...lanes, lanes.length ? h("p", { class: "muted key" }, ...key.map(([kind, text]) => h("span", {}, h("i", { class: kind }), ` ${text}`))) : "");
  }

  #replace(shown) {
    for (const plot of this.plots) plot.destroy();
    this.plotted.replaceChildren();
    const height = shown.length > 2 ? LOW : HEIGHT;
    this.plots = shown.map((each, index) => this.#plot({ ...each, height, hasAxis: index === shown.length - 1 }));
  }

  #plot({ title, lines, data, bands, time, height, hasAxis }) {
    const grid = { stroke: () => style("--line"), width: 1 };
    const axis = { stroke: () => style("--muted"), grid, ticks: grid, font: '11px system-ui, "DejaVu Sans", sans-serif' };
    const figure = h("figure", {}, h("figcaption", { class: "muted" }, title, " ", ...lines.map(({ label, colour }) => h("span", { class: "line-key" }, h("i", { "data-colour": colour }), label))));
    for (const sign of figure.querySelectorAll("[data-colour]")) sign.style.background = `var(${sign.dataset.colour})`;
    this.plotted.append(figure);
    return new uPlot({
      width: this.plotted.clientWidth || 300,
      height: height + (hasAxis ? TICKS : 8),
      padding: [6, 24, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false }, points: { show: false }, sync: { key: "impact" }, bind: { dblclick: () => () => this.impact && this.#zoom(this.impact.run.begin_ns, this.impact.run.end_ns) } },
      scales: { x: { time: false }, y: { range: ({ data: [, ...rows] }) => [0, (d3.max(rows, (row) => d3.max(row)) ?? 0) * 1.05 || 1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((at) => time(at, ticks)), space: 70, size: hasAxis ? TICKS : 8, ...(hasAxis ? {} : { values: () => [], ticks: { show: false } }) },
        { ...axis, size: AXIS, space: 22, values: (_, ticks) => ticks.map(tick) },
      ],
      series: [{}, ...lines.map(({ label, colour, width = 1.25, isFilled }) => ({
        label, width, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
        stroke: () => style(colour), fill: isFilled ? () => style(colour) : null,
      }))],
      hooks: {
        drawClear: [(plot) => drawBands(plot, bands())],
        setScale: [(scaled, key) => key === "x" && this.#zoomed(scaled)],
      },
    }, data, figure);
  }

  #zoomed(from) {
    const { min, max } = from.scales.x;
    if (!this.impact || min == null) return;
    for (const plot of this.plots) {
      if (plot !== from && (plot.scales.x.min !== min || plot.scales.x.max !== max)) plot.setScale("x", { min, max });
    }
    this.window = [min * S, max * S];
    this.#drawLanes();
  }

  #resize() {
    const width = this.plotted.clientWidth;
    if (!width) return;
    for (const plot of this.plots) if (plot.width !== width) plot.setSize({ width, height: plot.height });
  }
}

// What a switch did after an event, as marks of its lane: from and to, a kind and words.
function marksOf(step, hold) {
  const { by, node, detected_ns: detected, session_ns: session, best_path_ns: best, zebra_ns: zebra, kernel_ns: kernel } = step;
  const known = Math.max(detected ?? -Infinity, session != null && best != null && session < best ? session : -Infinity);
  const marks = [];
  if (detected != null) {
    const isTold = by === "neighbour's update";
    marks.push({ kind: isTold ? "withdrawn" : "noticed", from: detected, text: `${node}: ${isTold ? "a neighbour's update" : `noticed by ${by}`}` });
  }
  if (best != null && Number.isFinite(known)) {
    const held = Math.min(best, known + hold);
    marks.push({ kind: "hold", from: known, to: held, text: `${node}: FRR holds changed routes for ${duration(hold)}` });
    marks.push({ kind: "decide", from: held, to: best, text: `${node}: best path decided` });
  }
  const ready = best ?? zebra;
  if (kernel != null) marks.push({ kind: "write", from: ready ?? kernel, to: kernel, text: `${node}: the kernel's routes changed` });
  return marks;
}

function mark1({ kind, from, to, text }, place) {
  const made = h("i", { class: kind, title: text });
  made.style.left = `${place(from)}%`;
  if (to != null) made.style.width = `max(2px, ${place(to) - place(from)}%)`;
  return made;
}

// A tick of the time axis, in s after the first fault, as text.
function since(at, ticks) {
  return timeTicks(ticks)[ticks.indexOf(at)];
}
