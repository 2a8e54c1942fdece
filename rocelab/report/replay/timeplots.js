// Plots of a run over time, in one window that a drag zooms into. Lines mark faults and the instant
// that is shown.

import { h } from "./elements.js";
import { style } from "./format.js";
import { tick, timeTicks } from "./quantities.js";
import { S } from "./series.js";

const HEIGHTS = [170, 120];
const LEAST_APART = 20; // pixels between the names of events

export class TimePlots {
  // `onWindow`: the shown time, in ns, has changed. `onPick`: an instant was clicked.
  constructor(element, { onWindow, onPick }) {
    this.element = element;
    this.onWindow = onWindow;
    this.onPick = onPick;
    this.plots = [];
    new ResizeObserver(() => this.#resize()).observe(element);
  }

  start(run, shown) {
    const window = this.run === run ? this.window : [run.begin_ns, run.end_ns];
    this.run = run;
    for (const plot of this.plots) plot.destroy();
    this.element.replaceChildren();
    this.plots = shown.map((each, place) => this.#plot(HEIGHTS[place], each));
    this.show(...window);
  }

  // Zoom to a time in ns.
  show(low, high) {
    this.window = [low, high];
    for (const plot of this.plots) plot.setScale("x", { min: low / S, max: high / S });
  }

  at(instant) {
    this.instant = instant;
    const [low, high] = this.window;
    if (instant < low || instant > high) {
      const half = (high - low) / 2;
      const middle = Math.max(this.run.begin_ns + half, Math.min(this.run.end_ns - half, instant));
      this.show(middle - half, middle + half);
    }
    this.redraw();
  }

  redraw() {
    for (const plot of this.plots) plot.redraw(false);
  }

  // Where the time axis is, in pixels from the left of the element.
  area() {
    const { left, width } = this.plots[0].bbox;
    return { left: left / devicePixelRatio, width: width / devicePixelRatio };
  }

  #plot(height, { title, lines, data }) {
    const grid = { stroke: () => style("--line"), width: 1 };
    const axis = { stroke: () => style("--muted"), grid, ticks: grid, font: '12px system-ui, "DejaVu Sans", sans-serif' };
    const paths = uPlot.paths.stepped({ align: 1 });
    const figure = h("figure", {}, h("figcaption", {}, title));
    this.element.append(figure);
    return new uPlot({
      width: this.element.clientWidth,
      height,
      padding: [16, 12, 0, 0],
      legend: { show: lines.length > 1, live: false },
      cursor: {
        y: false, drag: { x: true, y: false }, points: { show: false }, sync: { key: "time" },
        bind: { dblclick: () => () => this.show(this.run.begin_ns, this.run.end_ns) },
      },
      scales: { x: { time: false }, y: { range: (_, low, top) => [0, top * 1.05 || 1] } },
      axes: [
        { ...axis, values: (_, ticks) => timeTicks(ticks), space: 70, size: 34 },
        { ...axis, size: 70, space: 26, values: (_, ticks) => ticks.map(tick) },
      ],
      series: [{}, ...lines.map(({ label, colour, width = 1.25, isFilled }) => ({
        label, width, paths, spanGaps: true, points: { show: false },
        stroke: () => style(colour), fill: isFilled ? () => style(colour) : null,
      }))],
      hooks: {
        setScale: [(scaled, key) => key === "x" && this.#zoomed(scaled)],
        draw: [(drawn) => this.#mark(drawn)],
        ready: [(made) => this.#clicks(made)],
      },
    }, data, figure);
  }

  // Both plots show the time that one was zoomed to.
  #zoomed(from) {
    const { min, max } = from.scales.x;
    for (const plot of this.plots) {
      if (plot !== from && (plot.scales.x.min !== min || plot.scales.x.max !== max)) plot.setScale("x", { min, max });
    }
    this.window = [min * S, max * S];
    this.onWindow(...this.window);
  }

  #clicks(plot) {
    let down = 0;
    plot.over.addEventListener("mousedown", (event) => { down = event.clientX; });
    plot.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - down) < 3) this.onPick(plot.posToVal(event.offsetX, "x") * S);
    });
  }

  #mark(plot) {
    const { ctx: context, bbox } = plot;
    const ratio = devicePixelRatio;
    const line = (t, colour, dash, width) => {
      const x = plot.valToPos(t / S, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) return null;
      context.beginPath();
      context.setLineDash(dash.map((each) => each * ratio));
      context.strokeStyle = colour;
      context.lineWidth = width * ratio;
      context.moveTo(x, bbox.top);
      context.lineTo(x, bbox.top + bbox.height);
      context.stroke();
      return x;
    };
    context.save();
    context.font = `${11 * ratio}px system-ui, "DejaVu Sans", sans-serif`;
    context.fillStyle = style("--muted");
    context.textAlign = "center";
    let free = 0;
    for (const { kind, t_ns: t, begins, event } of this.run.events) {
      if (kind !== "fault") continue;
      const x = line(t, style(begins ? "--down" : "--ok"), [4, 3], 1);
      if (x == null || x < free) continue;
      context.fillText(`E${event}`, x, bbox.top - 4 * ratio);
      free = x + LEAST_APART * ratio;
    }
    if (this.instant != null) line(this.instant, style("--text"), [], 2);
    context.restore();
  }

  #resize() {
    const width = this.element.clientWidth;
    if (!width) return;
    for (const plot of this.plots) {
      if (plot.width !== width) plot.setSize({ width, height: plot.height });
    }
    if (this.plots.length) this.onWindow(...this.window);
  }
}
