// A flow: its predicted path, and of one that a job sends now also where its packets are seen.

import { h } from "./elements.js";
import { count, counted } from "./quantities.js";
import { get, post } from "./requests.js";

const EVERY_MS = 2000;
const MOST_IN_SELECT = 300;

export class Flow {
  // `pick`: a node or link was chosen. `mark`: the links and nodes of a path, and links beside it
  // on which the flow was seen.
  constructor(section, { pick, mark }) {
    this.section = section;
    this.form = section.querySelector("form");
    this.shown = section.querySelector("#hops");
    this.clear = section.querySelector("[type=reset]");
    this.pick = pick;
    this.mark = mark;
    this.flows = [];
    this.running = this.form.elements.running;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.form.addEventListener("reset", () => this.#show(null, null));
    this.running.addEventListener("change", () => this.#take());
  }

  start({ nodes }) {
    const servers = nodes.filter((node) => node.tier === 0).slice(0, MOST_IN_SELECT);
    const { src, dst } = this.form.elements;
    this.section.hidden = servers.length < 2;
    for (const [select, first] of [[src, 0], [dst, servers.length - 1]]) {
      select.replaceChildren(...servers.map((node, index) => h("option", { selected: index === first }, node.name)));
    }
  }

  // Which flows there are to choose from; ask again as long as something uses the lab, whose flows
  // come and go.
  async follow(isUsed) {
    clearTimeout(this.next);
    const found = await get("/flows").catch(() => ({ flows: [], total: 0 }));
    if (isUsed) this.next = setTimeout(() => this.follow(true), EVERY_MS);
    const said = JSON.stringify(found);
    if (said === this.said) return;
    this.said = said;
    this.flows = found.flows;
    this.running.replaceChildren(h("option", { value: "" }, "none"), ...this.flows.map((flow, index) => h("option", { value: index }, named(flow))));
    const beyond = found.total - this.flows.length;
    if (beyond > 0) this.running.append(h("option", { disabled: true }, `and ${count(beyond)} more`));
    this.running.parentElement.hidden = !this.flows.length;
  }

  #take() {
    const flow = this.flows[this.running.value];
    if (!flow) return;
    for (const [name, value] of Object.entries(flow)) {
      const field = this.form.elements[name];
      if (!field) continue;
      if (field.options && ![...field.options].some((option) => option.value === value)) field.append(h("option", {}, value));
      field.value = value;
    }
  }

  async #ask() {
    const { src, dst, sport, qp } = this.form.elements;
    const typed = { src: src.value, dst: dst.value, sport: Number(sport.value), ...(qp.value ? { qp: Number(qp.value) } : {}) };
    const chosen = this.flows[this.running.value];
    const asked = chosen && Object.entries(typed).every(([key, value]) => chosen[key] === value) ? chosen : null;
    const path = await post("/path", asked ?? typed).catch((error) => ({ error }));
    this.#show(path, null, Boolean(asked));
    if (!asked) return;
    const seen = await post("/observe", asked).catch((error) => ({ error }));
    this.#show(path, seen);
  }

  #show(path, seen, waits = false) {
    const predicted = new Set(path?.links);
    const beside = (seen?.links ?? []).filter(({ link }) => !predicted.has(link));
    this.mark(predicted, new Set(path?.hops), new Set(beside.map(({ link }) => link)));
    this.clear.hidden = !path;
    const made = [];
    if (path?.error) made.push(h("p", { class: "bad", role: "alert" }, path.error.message));
    if (path?.detail) made.push(this.#hops(path, seen), h("p", { class: "muted" }, `By the kernels' tables as they were when you asked; scheme ${path.scheme}.`));
    if (waits) made.push(h("p", { class: "muted" }, "looking for its packets"));
    if (seen) made.push(...this.#observed(seen, path, beside));
    this.shown.replaceChildren(...made);
  }

  #hops(path, seen) {
    const packets = new Map((seen?.links ?? []).map((each) => [`${each.link} ${each.from}`, each.packets]));
    return h("ol", {}, ...path.detail.map((hop) => h("li", {},
      this.#choice(hop.node), ` leaves by ${hop.interface}`,
      hop.hash == null ? "" : `: choice ${hop.index + 1} of ${hop.width}, hash 0x${hop.hash.toString(16).padStart(8, "0")}`,
      seen?.links ? h("b", {}, ` ${count(packets.get(`${hop.link} ${hop.node}`) ?? 0)} packets seen`) : "")),
    h("li", {}, path.hops.at(-1)));
  }

  #observed(seen, path, beside) {
    if (seen.error) return [h("p", { class: "bad", role: "alert" }, seen.error.message)];
    if (!seen.links.length) return [h("p", {}, "None of its packets came in at a link that it could take: it sent nothing then.")];
    const span = `in ${seen.span_s.toFixed(1)} s, by the kernels of the receiving ports`;
    const list = h("ul", {}, ...beside.map(({ link, from, to, packets }) => h("li", {}, this.#choice(link), ` from ${from} to ${to}: ${counted(packets, "packet")}`)));
    if (path.error) return [h("p", {}, `Seen ${span}:`), list];
    if (beside.length) return [h("p", { class: "bad" }, `✕ Seen also beside the predicted path ${span}:`), list];
    if (seen.links.length < path.links.length) return [h("p", { class: "bad" }, `✕ Seen on a part of its path only ${span}.`)];
    return [h("p", { class: "ok" }, `● Seen where it was predicted, and nowhere else, ${span}.`)];
  }

  #choice(name) {
    return h("button", { class: "link", type: "button", onclick: () => this.pick(name) }, name);
  }
}

function named({ src, src_nic: srcNic, dst, dst_nic: dstNic, sport, qp }) {
  const nic = (server, number) => (number > 1 ? `${server}:${number}` : server);
  return `${nic(src, srcNic)} to ${nic(dst, dstNic)}, port ${sport}, QP ${qp}`;
}
