// Draws a layout: links on a canvas, nodes as buttons above it, so that they can be read, focused
// and found. Zooming moves both. Gives what was pointed at or chosen to its callbacks.

import { h } from "./elements.js";
import { SIGNS, STATES, place, scale, shown, style } from "./format.js";
import { NARROW_STAGE, TRUNK } from "./layout.js";
import { paced } from "./pace.js";

const NEAR = 7;
const LANE = 2.2;
const MARGIN = 34;
const CAPTION = 130;

export class Drawing {
  // `pick`: a box or an edge was chosen. `tip`: what to say of an edge under the pointer, or null.
  constructor(stage, { pick, tip }) {
    this.stage = stage;
    this.canvas = stage.querySelector("canvas");
    this.labels = stage.querySelector("#labels");
    this.pick = pick;
    this.tip = tip;
    this.buttons = new Map();
    this.transform = d3.zoomIdentity;
    this.redraw = paced(() => this.placed && this.#draw());
    this.zoom = d3.zoom().scaleExtent([0.1, 6]).on("zoom", ({ transform }) => {
      this.transform = transform;
      this.redraw();
    });
    d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("mousemove", (event) => this.#point(event));
    this.canvas.addEventListener("mouseleave", () => this.tip(null));
    this.canvas.addEventListener("click", (event) => {
      const edge = this.#edgeAt(event);
      if (edge) this.pick({ edge });
    });
  }

  // Show a layout with the state that `view` gives: values, carriers, states, path, choice.
  show(placed, view) {
    this.placed = placed;
    this.view = view;
    this.labels.replaceChildren();
    this.buttons.clear();
    for (const frame of placed.frames) {
      this.labels.append(at(h("div", { class: "frame" }, h("span", {}, frame.zone)), frame));
    }
    for (const caption of placed.captions) {
      const made = h("div", { class: "caption" }, caption.text);
      made.style.transform = `translate(${-CAPTION}px, ${caption.y - 8}px)`;
      this.labels.append(made);
    }
    for (const box of placed.boxes) {
      const button = h("button", { class: "node", onclick: () => this.pick({ box }) });
      this.labels.append(at(button, box));
      this.buttons.set(box.key, button);
    }
    this.redraw();
  }

  fit() {
    const width = this.stage.clientWidth;
    const height = this.stage.clientHeight - this.stage.querySelector("#key").offsetHeight;
    const { placed } = this;
    // On a phone the width is for nodes alone.
    const isNarrow = width < NARROW_STAGE;
    const [margin, caption] = isNarrow ? [6, 0] : [MARGIN, CAPTION];
    this.stage.classList.toggle("is-narrow", isNarrow);
    const k = Math.min(1.25, (width - 2 * margin) / (placed.width + caption), (height - 2 * Math.min(MARGIN, height * 0.06)) / (placed.height + 20));
    const x = (width - (placed.width - caption) * k) / 2;
    const y = (height - placed.height * k) / 2;
    d3.select(this.canvas).call(this.zoom.transform, d3.zoomIdentity.translate(x, y).scale(k));
  }

  #draw() {
    const { transform, placed, view } = this;
    const context = sized(this.canvas, this.stage);
    this.labels.style.transform = `translate(${transform.x}px, ${transform.y}px) scale(${transform.k})`;
    context.translate(transform.x, transform.y);
    context.scale(transform.k, transform.k);
    const colours = scale();
    const ink = { idle: style("--wire"), down: style("--down"), path: style("--path"), beside: style("--beside"), chosen: style("--chosen") };
    // Those without carrier last: nothing hides them.
    const [lit, dark] = [[], []];
    for (const edge of placed.edges) (edge.links.some(view.isDark) ? dark : lit).push(edge);
    for (const edge of [...lit, ...dark]) this.#edge(context, edge, colours, ink);
    for (const box of placed.boxes) this.#label(box, view);
  }

  #edge(context, edge, colours, ink) {
    const { view } = this;
    const way = wayOf(edge);
    const many = edge.links.length <= 4 ? edge.links : null;
    const lanes = many ?? [null];
    lanes.forEach((link, index) => {
      const links = link ? [link] : edge.links;
      const shift = (index - (lanes.length - 1) / 2) * 3 * LANE;
      const on = links.some((each) => view.path.has(each.name));
      const chosen = links.some((each) => each.name === view.chosen);
      const beside = links.some((each) => view.beside.has(each.name));
      if (on || beside || chosen) {
        // Visible beside lines as wide as their load.
        const most = Math.max(...links.flatMap(({ index: each }) => [view.value(2 * each), view.value(2 * each + 1)]));
        line(context, way, shift, chosen ? ink.chosen : beside ? ink.beside : ink.path, 9 + 4 * place(view.metric, most));
      }
      const dark = links.filter((each) => view.isDark(each)).length;
      if (dark) {
        context.setLineDash([5, 4]);
        line(context, way, shift, ink.down, 2.4);
        context.setLineDash([]);
        cross(context, way, shift, ink.down);
        if (dark === links.length) return;
      }
      for (const [direction, side] of [[0, 1], [1, -1]]) {
        const value = Math.max(...links.map((each) => view.value(2 * each.index + direction)));
        const t = place(view.metric, value);
        const colour = value ? colours(t) : ink.idle;
        line(context, way, shift + side * LANE, colour, value ? 1.6 + 2.6 * t : 1.1);
      }
    });
  }

  #label(box, view) {
    const button = this.buttons.get(box.key);
    const state = view.stateOf(box);
    const text = view.nameOf(box);
    const said = box.narrow ? `${state === "ok" || state === "rerouted" ? "" : SIGNS[state]}${text.replace(/^\w+-(?=[a-z])/, "")}` : `${SIGNS[state]} ${text}`;
    if (button.textContent !== said) button.textContent = said;
    button.className = `node ${state}${box.node ? "" : " many"}${box.node?.tier === 0 ? " server" : ""}${box.narrow ? " narrow" : ""}`;
    button.toggleAttribute("data-chosen", view.chosen === (box.node?.name ?? box.key));
    button.toggleAttribute("data-path", Boolean(box.node && view.passed.has(box.node.name)));
    const label = `${text}: ${STATES[state]}`;
    if (button.title !== label) {
      button.title = label;
      button.setAttribute("aria-label", label);
    }
  }

  #point(event) {
    const edge = this.#edgeAt(event);
    this.canvas.style.cursor = edge ? "pointer" : "grab";
    this.tip(edge, event.offsetX, event.offsetY);
  }

  #edgeAt(event) {
    if (!this.placed) return null;
    const [x, y] = this.transform.invert([event.offsetX, event.offsetY]);
    let nearest = null;
    let least = NEAR / this.transform.k;
    for (const edge of this.placed.edges) {
      const distance = away(wayOf(edge), x, y);
      if (distance < least) [nearest, least] = [edge, distance];
    }
    return nearest;
  }
}

function at(element, box) {
  element.style.transform = `translate(${box.x}px, ${box.y}px)`;
  element.style.width = `${box.width}px`;
  element.style.height = `${box.height}px`;
  return element;
}

// A canvas as large as its stage, in pixels of the screen, and empty.
export function sized(canvas, stage) {
  const ratio = devicePixelRatio;
  const { clientWidth: width, clientHeight: height } = stage;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.lineCap = "round";
  return context;
}

// The points from the end `a` of an edge's links to the end `b`: straight from box to box, for a
// server in a column along the trunk.
function wayOf({ a, b }) {
  if (a.stacked) {
    const x = b.x + TRUNK / 2;
    const y = a.y + a.height / 2;
    return [[a.x, y], [x, y], [x, b.y + b.height]];
  }
  const [low, high] = a.y > b.y ? [a, b] : [b, a];
  const p = [low.x + low.width / 2, low.y];
  const q = [high.x + high.width / 2, high.y + high.height];
  return a === low ? [p, q] : [q, p];
}

// A way moved `shift` to the right of who goes along it; y grows downwards.
function moved(way, shift) {
  if (way.length === 3) {
    const [[x0, y0], [x1], [, y2]] = way;
    return [[x0, y0 - shift], [x1 + shift, y0 - shift], [x1 + shift, y2]];
  }
  const [[x0, y0], [x1, y1]] = way;
  const length = Math.hypot(x1 - x0, y1 - y0) || 1;
  const dx = (-(y1 - y0) / length) * shift;
  const dy = ((x1 - x0) / length) * shift;
  return [[x0 + dx, y0 + dy], [x1 + dx, y1 + dy]];
}

function line(context, way, shift, colour, width) {
  context.beginPath();
  for (const [x, y] of moved(way, shift)) context.lineTo(x, y);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke();
}

function cross(context, way, shift, colour) {
  const [[x0, y0], [x1, y1]] = moved(way, shift);
  const [x, y] = [(x0 + x1) / 2, (y0 + y1) / 2];
  const size = way.length === 3 ? 4 : 6;
  context.strokeStyle = colour;
  context.lineWidth = 3;
  context.beginPath();
  for (const [sx, sy] of [[1, 1], [1, -1]]) {
    context.moveTo(x - size * sx, y - size * sy);
    context.lineTo(x + size * sx, y + size * sy);
  }
  context.stroke();
}

function away(way, x, y) {
  let least = Infinity;
  for (let index = 1; index < way.length; index += 1) {
    const [[x0, y0], [x1, y1]] = [way[index - 1], way[index]];
    const [dx, dy] = [x1 - x0, y1 - y0];
    const t = Math.max(0, Math.min(1, ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1)));
    least = Math.min(least, Math.hypot(x - x0 - t * dx, y - y0 - t * dy));
  }
  return least;
}

const MOST_TOLD = 8;

// Lines about an edge: of several links each by its name, the worst of each direction beyond some.
export function tipOf(edge, view) {
  const told = (links, way) => shown(view.metric, Math.max(...links.map(({ index }) => view.value(2 * index + way))));
  const dark = (links) => (links.some((each) => view.isDark(each)) ? ", without carrier" : "");
  if (edge.links.length > 1 && edge.links.length <= MOST_TOLD) {
    return [`${edge.links.length} links, up and down`, ...edge.links.map((link) => `${link.name}: ${told([link], 0)}, ${told([link], 1)}${dark([link])}`)];
  }
  const name = edge.links.length > 1 ? `${edge.links.length} links, the worst of each direction` : edge.links[0].name;
  return [`${name}${dark(edge.links)}`, ...[[0, edge.b], [1, edge.a]].map(([way, to]) => `to ${view.nameOf(to)}: ${told(edge.links, way)}`)];
}
