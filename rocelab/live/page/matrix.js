// A zone with many leaves as a matrix of links: a row for each switch above and, below, for servers;
// a column for each leaf.
// A cell's upper half is what the leaf sends up, its lower half what comes down.

import { sized } from "./canvas.js";
import { h } from "./elements.js";
import { SIGNS, place, scale, style } from "./format.js";
import { paced } from "./pace.js";

const LEFT = 84;
const TOP = 46;
const SHADES = 64;
const MOST_SERVERS = 4; // of a leaf, each in a row of its own

export class Matrix {
  constructor(stage, { pick, tip }) {
    this.stage = stage;
    this.canvas = h("canvas", { tabindex: "0", "aria-label": "Links of the zone as a matrix; arrow keys move, Enter chooses" });
    this.heads = h("div", { class: "heads" });
    stage.append(this.canvas, this.heads);
    this.at = null;
    this.canvas.addEventListener("mousemove", (event) => {
      const cell = this.#cell(event.offsetX, event.offsetY);
      tip(cell?.edge, event.offsetX, event.offsetY);
    });
    this.canvas.addEventListener("mouseleave", () => tip(null));
    this.canvas.addEventListener("click", (event) => {
      const found = this.#cell(event.offsetX, event.offsetY);
      if (found?.edge) pick({ edge: found.edge });
      else if (found?.node) pick({ box: { key: found.node.name, node: found.node } });
    });
    this.canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (move && this.columns) {
        event.preventDefault();
        const [x, y] = this.at ?? [0, 0];
        this.at = [clamp(x + move[0], this.columns.length), clamp(y + move[1], this.rows.length)];
        this.redraw();
      } else if (event.key === "Enter" && this.at) {
        const edge = this.edges.get(`${this.at[0]},${this.at[1]}`);
        if (edge) pick({ edge });
      }
    });
    this.pick = pick;
    this.redraw = paced(() => this.columns && this.#draw());
  }

  show(fabric, columns, above, view) {
    this.columns = columns;
    this.view = view;
    this.edges = new Map();
    const column = new Map(columns.map((node, index) => [node.name, index]));
    const row = new Map(above.map((node, index) => [node.name, index]));
    const below = columns.map((leaf) => [...new Set(fabric.linksOf.get(leaf.name).filter((link) => link.b === leaf.name).map((link) => link.a))]);
    const servers = rowsOf(d3.max(below, (names) => names.length) ?? 0);
    this.rows = [...above.map((node) => ({ node })), ...servers.map((title) => ({ title }))];
    const add = (link, at, a, b) => {
      const key = at.join(",");
      if (!this.edges.has(key)) this.edges.set(key, { a: { key: a.name, node: a }, b: { key: b.name, node: b }, links: [], at });
      this.edges.get(key).links.push(link);
    };
    for (const link of fabric.links) {
      const [a, b] = [fabric.nodeBy.get(link.a), fabric.nodeBy.get(link.b)];
      if (column.has(link.a) && row.has(link.b)) add(link, [column.get(link.a), row.get(link.b)], a, b);
      else if (column.has(link.b) && servers.length) {
        const at = column.get(link.b);
        add(link, [at, above.length + (servers.length === 1 ? 0 : below[at].indexOf(link.a))], a, b);
      }
    }
    this.heads.replaceChildren(...this.rows.map(({ node, title }) => (node
      ? h("button", { class: "node", onclick: () => this.pick({ box: { key: node.name, node } }) })
      : h("span", { class: "head" }, title))));
    this.redraw();
  }

  #size() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    const key = this.stage.querySelector("#key")?.offsetHeight ?? 0;
    return [(width - LEFT - 16) / this.columns.length, (height - TOP - key - 16) / this.rows.length];
  }

  #draw() {
    const { view } = this;
    const context = sized(this.canvas, this.stage);
    const [width, height] = this.#size();
    const colours = scale();
    const ink = { idle: style("--cell"), down: style("--down"), text: style("--muted"), path: style("--path"), beside: style("--beside"), chosen: style("--chosen") };
    const states = { ok: style("--ok"), rerouted: style("--ok"), degraded: style("--degraded"), down: style("--down") };
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = ink.text;
    const every = Math.max(1, Math.ceil(64 / width));
    this.columns.forEach((node, index) => {
      const x = LEFT + index * width;
      context.fillStyle = states[view.stateOf({ node })];
      context.fillRect(x, TOP - 12, Math.max(1, width - 1), 8);
      if (index % every === 0 && index + every <= this.columns.length) {
        context.fillStyle = ink.text;
        context.fillText(node.name, x, TOP - 18);
      }
    });
    this.rows.forEach(({ node }, index) => {
      const button = this.heads.children[index];
      if (node) {
        const state = view.stateOf({ node });
        const text = `${SIGNS[state]} ${node.name}`;
        if (button.textContent !== text) button.textContent = text;
        if (button.className !== `node ${state}`) button.className = `node ${state}`;
      }
      if (button.offset === (index + 1) * height) return;
      button.offset = (index + 1) * height;
      button.style.height = `${height - 2}px`;
      button.style.transform = `translate(8px, ${TOP + index * height}px)`;
    });
    const [gapX, gapY] = [width > 5 ? 1 : 0.5, 2];
    const shades = d3.range(SHADES).map((shade) => colours(shade / (SHADES - 1)));
    const marks = [];
    for (const edge of this.edges.values()) {
      const [x, y] = [LEFT + edge.at[0] * width, TOP + edge.at[1] * height];
      const [w, t] = [width - gapX, height - gapY];
      if (edge.links.every(view.isDark)) {
        context.fillStyle = ink.down;
        context.fillRect(x, y, w, t);
        continue;
      }
      for (const way of [0, 1]) {
        const value = d3.max(edge.links, (link) => view.value(2 * link.index + way));
        context.fillStyle = value ? shades[Math.round(place(view.metric, value) * (SHADES - 1))] : ink.idle;
        context.fillRect(x, y + (way * t) / 2, w, t / 2);
      }
      const mark = edge.links.some((link) => view.path.has(link.name)) ? ink.path
        : edge.links.some((link) => view.beside.has(link.name)) ? ink.beside
          : edge.links.some((link) => link.name === view.chosen || link.a === view.chosen || link.b === view.chosen) ? ink.chosen
            : null;
      if (mark) marks.push([mark, x, y, w, t]);
    }
    for (const mark of marks) frame(context, ...mark);
    if (this.at && document.activeElement === this.canvas) {
      frame(context, style("--text"), LEFT + this.at[0] * width, TOP + this.at[1] * height, width, height);
    }
  }

  #cell(x, y) {
    if (!this.columns) return null;
    const [width, height] = this.#size();
    const column = Math.floor((x - LEFT) / width);
    const row = Math.floor((y - TOP) / height);
    if (column < 0 || column >= this.columns.length) return null;
    if (row < 0) return { node: this.columns[column] };
    return row < this.rows.length ? { edge: this.edges.get(`${column},${row}`) } : null;
  }
}

// The titles of the rows below the leaves: of each server or, where there are many, of all.
function rowsOf(number) {
  if (number > MOST_SERVERS) return [`${number} servers`];
  return d3.range(1, number + 1).map((server) => (number > 1 ? `server ${server}` : "servers"));
}

function clamp(value, count) {
  return Math.max(0, Math.min(count - 1, value));
}

function frame(context, colour, x, y, width, height) {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.strokeRect(x, y, width, height);
}
