// The networks of a lab with several: the totals of each, and the one that the page is to show alone.

import { h } from "./elements.js";
import { count, counted } from "./quantities.js";
import { isDark } from "./picture.js";

export class Networks {
  // `changed`: another network was chosen, or all.
  constructor(fieldset, changed) {
    this.fieldset = fieldset;
    this.changed = changed;
    this.chosen = null;
    this.texts = new Map();
  }

  start(fabric) {
    this.fabric = fabric;
    const names = fabric.networks ?? [];
    if (!names.includes(this.chosen)) this.chosen = null;
    this.fieldset.hidden = !names.length;
    this.texts = new Map(names.map((name) => [name, h("span", {})]));
    const choices = [[null, "all"], ...names.map((name) => [name, this.texts.get(name)])];
    this.fieldset.replaceChildren(h("legend", {}, "Networks"), ...choices.map(([name, text]) => {
      const input = h("input", { type: "radio", name: "network", value: name ?? "", checked: name === this.chosen });
      input.addEventListener("change", () => {
        this.chosen = name;
        this.changed();
      });
      return h("label", {}, input, text);
    }));
    this.update();
  }

  // Bring the totals up to date.
  update() {
    for (const [name, text] of this.texts) {
      const links = this.fabric.links.filter((link) => link.network === name);
      const switches = this.fabric.nodes.filter((node) => node.tier > 0 && name in node.networks);
      const dark = links.filter(isDark).length;
      const wrong = switches.filter((node) => node.state !== "ok").length;
      const missing = [dark && `${counted(dark, "link")} without carrier`, wrong && `${counted(wrong, "switch", "switches")} not as planned`].filter(Boolean);
      text.className = missing.length ? "down" : "";
      text.textContent = `${name}: ${count(switches.length)} switches, ${count(links.length)} links${missing.length ? `, ${missing.join(", ")}` : ""}`;
    }
  }

  // Whether what is in a network, or in none that is known, is to be shown.
  has(network) {
    return this.chosen === null || network == null || network === this.chosen;
  }

  // Whether an event is of what is shown; events of no place are.
  hasEvent({ link, node, subject }) {
    if (this.chosen === null) return true;
    const of = (name) => this.fabric.linkBy.get(name?.split(/[, ]/)[0]) ?? null;
    const about = of(link) ?? of(subject);
    if (about) return about.network === this.chosen;
    const place = this.fabric.nodeBy.get(node ?? subject?.split(":")[0]);
    return !place || this.chosen in place.networks;
  }

  // The part of the fabric that is shown, with the zones that its nodes have there.
  part() {
    const { chosen, fabric } = this;
    if (chosen === null) return fabric;
    const nodes = fabric.nodes.filter((node) => chosen in node.networks).map((node) => Object.assign(Object.create(node), { zone: node.networks[chosen] }));
    const links = fabric.links.filter((link) => link.network === chosen);
    return {
      ...fabric, nodes, links,
      nodeBy: new Map(nodes.map((node) => [node.name, node])),
      linksOf: new Map(nodes.map(({ name }) => [name, links.filter(({ a, b }) => a === name || b === name)])),
    };
  }
}
