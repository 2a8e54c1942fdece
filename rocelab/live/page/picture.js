// The picture of a fabric: in tiers, or, where a zone has many leaves, as a matrix of its links.
// A recorded page uses it as the live page does.

import { Drawing } from "./canvas.js";
import { h } from "./elements.js";
import { MATRIX_FROM, layout, leavesOf } from "./layout.js";
import { Matrix } from "./matrix.js";
import { counted } from "./quantities.js";

const UNFOLDED = 50; // as many nodes are shown without folding zones
const SEVERITY = { ok: 0, rerouted: 1, degraded: 2, down: 3 };

// The fabric of a message with what finds its parts: nodes and links by name, links by their ends.
export function indexed(document) {
  const found = { ...document };
  found.nodeBy = new Map(found.nodes.map((node) => [node.name, node]));
  found.linkBy = new Map(found.links.map((link) => [link.name, link]));
  found.linksOf = new Map(found.nodes.map((node) => [node.name, []]));
  found.links.forEach((link, index) => {
    link.index = index;
    found.linksOf.get(link.a).push(link);
    found.linksOf.get(link.b).push(link);
  });
  return found;
}

// The node or the link of a name, as events have it; of several links the first.
export function named(fabric, name) {
  const node = fabric.nodeBy.get(name);
  const link = fabric.linkBy.get(name) ?? fabric.linkBy.get(name.split(/[, ]/)[0]);
  return node ? { node } : link ? { link } : null;
}

export function isDark(link) {
  return !(link.carrier[0] && link.carrier[1]);
}

export function stateOf(box, state = (node) => node.state) {
  const members = box.node ? [box.node] : box.members;
  return members.map(state).reduce((worst, each) => (SEVERITY[each] > SEVERITY[worst] ? each : worst), "ok");
}

export function nameOf(box) {
  if (box.node) return box.node.name;
  if (box.leaf) return `${box.members.length} servers`;
  const switches = box.members.filter((node) => node.tier > 0).length;
  return `${box.zone}: ${counted(switches, "switch", "switches")}, ${counted(box.members.length - switches, "server")}`;
}

export class Picture {
  // `choose`: one or several links, or nodes, were chosen. `tipOf`: lines about an edge. `dark`: what
  // it means that a link is red.
  constructor(stage, { choose, tipOf, dark }) {
    this.dark = dark;
    this.stage = stage;
    this.choose = choose;
    this.tipOf = tipOf;
    this.tipBox = stage.querySelector("#tip");
    this.actions = { pick: (picked) => this.#pick(picked), tip: (edge, x, y) => this.#tip(edge, x, y) };
    this.drawing = new Drawing(stage, this.actions);
    this.folded = new Set();
    this.fold = stage.querySelector("#fold");
    this.fold.addEventListener("click", () => {
      this.folded = new Set(this.#zones());
      this.#place();
    });
    stage.querySelector("#fit").addEventListener("click", () => this.drawing.fit());
    new ResizeObserver(() => this.#place()).observe(stage);
  }

  show(fabric, view) {
    this.fabric = fabric;
    this.view = view;
    const zones = this.#zones();
    this.folded = zones.size > 1 && fabric.nodes.length > UNFOLDED ? zones : new Set();
    this.fold.hidden = zones.size < 2;
    this.#place();
  }

  redraw() {
    if (this.matrix) this.matrix.redraw();
    else this.drawing.redraw();
  }

  #zones() {
    return new Set(this.fabric.nodes.map((node) => node.zone).filter((zone) => zone != null));
  }

  #place() {
    const { fabric, folded, stage, view } = this;
    if (!fabric || !stage.clientWidth) return;
    const zones = [...new Set(fabric.nodes.filter((node) => node.tier === 1).map((node) => node.zone))].filter((zone) => !folded.has(zone));
    const large = zones.find((zone) => leavesOf(fabric, zone).length >= MATRIX_FROM);
    stage.classList.toggle("as-matrix", large !== undefined);
    stage.querySelector("#ways").textContent = large === undefined
      ? `A link has two lines, each on the right-hand side of its direction. Red and dashed: ${this.dark}.`
      : `A cell is a link: up in its upper half, down in its lower half; red: ${this.dark}.`;
    if (large === undefined) {
      this.matrix?.canvas.remove();
      this.matrix?.heads.remove();
      this.matrix = null;
      this.drawing.show(layout(fabric, folded, stage.clientWidth, stage.clientHeight - stage.querySelector("#key").offsetHeight), view);
      this.drawing.fit();
      return;
    }
    this.matrix ??= new Matrix(stage, this.actions);
    const columns = leavesOf(fabric, large);
    const above = new Set(columns.flatMap((leaf) => fabric.linksOf.get(leaf.name).filter((link) => link.a === leaf.name).map((link) => link.b)));
    this.matrix.show(fabric, columns, fabric.nodes.filter((node) => above.has(node.name)), view);
  }

  #pick({ box, edge }) {
    if (edge) {
      this.choose(edge.links.length === 1 ? { link: edge.links[0] } : { links: edge.links, title: `${edge.links.length} links between ${nameOf(edge.a)} and ${nameOf(edge.b)}` });
    } else if (box.node) {
      this.choose({ node: box.node });
    } else if (box.zone !== undefined) {
      this.folded.delete(box.zone);
      this.#place();
    } else {
      this.choose({ members: box.members, title: box.key });
    }
  }

  #tip(edge, x, y) {
    const { stage, tipBox } = this;
    tipBox.hidden = !edge;
    if (!edge) return;
    tipBox.replaceChildren(...this.tipOf(edge).map((line) => h("div", {}, line)));
    const left = Math.min(x + 14, stage.clientWidth - tipBox.offsetWidth - 8);
    tipBox.style.transform = `translate(${left}px, ${y + 14}px)`;
  }
}
