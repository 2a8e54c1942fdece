// The last minutes of what is chosen, as three small plots: of a link its load each way and its deepest
// queue, of a node the load of its busiest port, its deepest queue and what its queues dropped.
// Pointing at one shows the values of that time in all.

import { h } from "./elements.js";
import { clock, shown, style } from "./format.js";
import { count, size } from "./quantities.js";
import { get } from "./requests.js";

const WINDOW_NS = 180e9;
const MOST_LINKS = 16;
const SIZE = { width: 130, height: 28 };
const load = (value) => shown("load", value);
const packets = (value) => `${count(Math.round(value))} packets/s`;
let made = 0;

export class Plots {
  // `links`: the busiest of them. `node`: as this node sends and receives by them; its queues are
  // the deepest, or the sum, of its ports.
  constructor(links, node, busy) {
    this.links = d3.sort(links, (link) => -busy(link)).slice(0, MOST_LINKS);
    this.node = node;
    this.times = [];
    this.series = new Map();
    this.drawn = new Map();
    this.pointed = null;
    this.sync = `plots-${(made += 1)}`;
    this.some = links.length > MOST_LINKS ? ` of the ${MOST_LINKS} ports that were the busiest when you chose it` : "";
    this.caption = h("figcaption", { class: "muted" });
    const key = node
      ? [h("i", { class: "solid" }), "out ", h("i", { class: "dashed" }), "in; ", h("span", {}, "load from 0 to 100%, others to their most")]
      : ["load from 0 to 100%, queue to its most"];
    this.key = h("p", { class: "muted plot-key" }, ...key);
    this.list = h("div", { class: "plots" });
    this.element = h("figure", {}, this.caption, this.list, this.key);
  }

  close() {
    this.isClosed = true;
    for (const { plot } of this.drawn.values()) plot.destroy();
  }

  // Ask for what is new and draw it.
  async more() {
    if (this.asking) return;
    this.asking = true;
    try {
      const asked = new URLSearchParams(this.links.map(({ name }) => ["link", name]));
      asked.set("since", this.times.at(-1) ?? 0);
      const found = await get(`/history?${asked}`);
      if (this.isClosed) return;
      this.#take(found);
      this.#draw();
    } finally {
      this.asking = false;
    }
  }

  #take({ t_ns: times, series }) {
    const known = this.times.length;
    // A time in ns is not exact here, so that the server may give the last one again.
    const from = times.filter((each) => each <= this.times.at(-1)).length;
    this.times.push(...times.slice(from));
    for (const each of series) {
      const key = [each.link, each.from, each.class, each.what].join(" ");
      if (!this.series.has(key)) this.series.set(key, { ...each, values: Array(known).fill(0) });
      this.series.get(key).values.push(...each.values.slice(from));
    }
    const old = d3.bisect(this.times, this.times.at(-1) - WINDOW_NS);
    this.times.splice(0, old);
    for (const { values } of this.series.values()) {
      values.splice(0, old);
      while (values.length < this.times.length) values.push(0); // an idle queue is left out
    }
  }

  #rows() {
    const all = [...this.series.values()];
    const loads = all.filter(({ what }) => what === "load");
    const queues = all.filter(({ what, from }) => what !== "load" && (!this.node || from === this.node));
    const together = (series, how) => this.times.map((_, index) => how(series.map(({ values }) => values[index])) ?? 0);
    const of = (what, how) => together(queues.filter((each) => each.what === what), how);
    const depth = { key: "depth", title: "deepest queue", values: [of("depth_bytes", d3.max)], text: (value) => size(Math.round(value)) };
    if (!this.node) {
      return [...loads.map(({ to, values }) => ({ key: `to ${to}`, title: `load to ${to}`, share: true, values: [values], text: load })), depth];
    }
    const ways = [loads.filter(({ from }) => from === this.node), loads.filter(({ from }) => from !== this.node)];
    return [
      { key: "load", title: "load, busiest port", share: true, values: ways.map((way) => together(way, d3.max)), text: (out, into) => `out ${load(out)}\nin ${load(into)}` },
      depth,
      { key: "drops", title: "dropped by queues", values: [of("drops_per_s", d3.sum)], text: packets },
    ];
  }

  #draw() {
    const times = this.times.map((each) => each / 1e9);
    d3.select(this.list).selectChildren()
      .data(this.#rows(), ({ key }) => key)
      .join((enter) => enter.append((row) => this.#plot(row)))
      .each((row) => {
        const drawn = this.drawn.get(row.key);
        drawn.row = row;
        drawn.plot.setData([times, ...row.values]);
      });
    this.#say();
  }

  #plot(row) {
    const [target, value] = [h("div", { "aria-hidden": "true" }), h("span", { class: "value" })];
    const top = (most) => Math.max(most, row.share ? 1 : 0) || 1;
    const lines = [
      { stroke: () => style("--accent"), fill: () => `${style("--accent")}22`, width: 1.5, points: { show: false } },
      { stroke: () => style("--second"), width: 1.5, dash: [4, 2], points: { show: false } },
    ];
    const plot = new uPlot({
      ...SIZE,
      padding: [3, 1, 1, 1],
      legend: { show: false },
      axes: [{ show: false }, { show: false }],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 }, sync: { key: this.sync } },
      scales: {
        x: { time: false, range: (_, low, high) => [high - WINDOW_NS / 1e9, high] },
        y: { range: (_, low, high) => [0, top(high)] },
      },
      series: [{}, ...lines.slice(0, row.values.length)],
      hooks: { setCursor: [({ cursor }) => this.#point(cursor.idx)] },
    }, null, target);
    this.drawn.set(row.key, { plot, row, value });
    return h("div", { class: "plot" }, h("span", {}, row.title), target, value);
  }

  #point(index) {
    if (index === this.pointed) return;
    this.pointed = index;
    this.#say();
  }

  #say() {
    if (!this.times.length) return;
    const index = this.pointed ?? this.times.length - 1;
    this.caption.textContent = this.pointed == null
      ? `The last 3 minutes${this.some}, to ${clock(this.times.at(-1), 0)}`
      : `At ${clock(this.times[index], 1)}`;
    for (const { row, value } of this.drawn.values()) {
      const now = row.text(...row.values.map((each) => each[index] ?? 0));
      value.textContent = row.values.length > 1 ? now : `${now}\nmost ${row.text(d3.max(row.values[0]))}`;
    }
  }
}
