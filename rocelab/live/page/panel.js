// The side panel: a switch, a server or a link that was chosen, its counters, and how to break it.

import { h, table, update } from "./elements.js";
import { SIGNS, clock, shown } from "./format.js";
import { count, rate, size } from "./quantities.js";
import { get, post } from "./requests.js";
import { Plots } from "./plots.js";
import { condition } from "./timeline.js";

const EVERY_MS = 1000;
const SOON_MS = 250;
const LASTS = ["1s", "3s", "10s", "30s", "2m"];

// The kind that is offered first of a link, a switch and a server.
const USUAL = ["carrier-down", "power-loss", "host-pause"];

export class Panel {
  constructor(section, { pick, openTerminal, view }) {
    [this.heading, this.content] = section.children;
    this.pick = pick;
    this.openTerminal = openTerminal;
    this.view = view;
    this.choice = null;
    this.opened = new Set();
    this.kinds = [];
    this.kind = null;
    this.lasts = "3s";
    setInterval(() => this.#follow(), EVERY_MS);
  }

  // `choice`: {node} or {link}, or {links} and {members} that are drawn as one.
  show(choice) {
    if (this.content.contains(document.activeElement)) this.heading.focus();
    this.choice = choice;
    this.heading.textContent = nameOf(choice);
    this.facts = h("div", {}, h("p", { class: "muted" }, "reading"));
    this.plots?.close();
    this.plots = this.#plots(choice);
    this.content.replaceChildren(this.plots?.element ?? "", this.facts, ...this.#breaking());
    this.refresh();
    this.#plot();
  }

  // Ask again soon, since something has happened to what is shown.
  touched(names) {
    const { choice } = this;
    if (!choice || !names.includes(choice.node?.name ?? choice.link?.name)) return;
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.refresh(), SOON_MS);
  }

  async refresh() {
    const { choice } = this;
    if (!choice) return;
    let made;
    try {
      if (choice.node) made = this.#node(await get(`/node/${encodeURIComponent(choice.node.name)}`));
      else if (choice.link) made = this.#link(await get(`/link?name=${encodeURIComponent(choice.link.name)}`));
      else made = this.#several(choice);
    } catch (error) {
      made = [h("p", { class: "bad" }, error.message)];
    }
    if (this.choice === choice) update(this.facts, h("div", {}, ...made));
  }

  // A link's counters come from the sampler; a node's sessions are asked of its bgpd: not for ever.
  #follow() {
    if (document.hidden) return;
    if (this.choice?.link) this.refresh();
    this.#plot();
  }

  #plot() {
    this.plots?.more().catch(() => {}); // the page says that the connection is lost
  }

  #plots({ node, link }) {
    const links = link ? [link] : node ? this.view.linksOf(node.name) : [];
    const busy = ({ index }) => Math.max(this.view.valueNow(2 * index), this.view.valueNow(2 * index + 1));
    return links.length ? new Plots(links, node?.name, busy) : null;
  }

  #node(node) {
    const state = node.condition?.state ?? "down";
    const facts = [node.role, node.zone == null ? null : `zone ${node.zone}`, node.asn && `AS ${node.asn}`, node.loopback].filter(Boolean);
    const daemons = Object.entries(node.daemons).map(([name, pid]) => `${name} ${pid ? `(${pid})` : "is dead"}`);
    return [
      h("p", {}, h("b", { class: state }, `${SIGNS[state]} `), node.condition ? condition(node.condition) : "cannot be read"),
      h("p", { class: "muted" }, facts.join(" · ")),
      daemons.length ? h("p", { class: "muted" }, daemons.join(" · ")) : "",
      this.#terminals(node.name, daemons.length),
      table(`Ports, counted by the kernel, read at ${clock(node.t_ns)}`, ["to", "carrier", "sent", "received", "lost"],
        node.interfaces.map((each) => [
          this.#choice(each.link, each.peer.split(":")[0]),
          carrier(each.counters), ...["tx_packets", "rx_packets", "lost"].map((key) => each.counters && count(each.counters[key])),
        ])),
      queues(node.interfaces),
      node.problem ? h("p", { class: "bad" }, node.problem) : "",
      node.sessions.length ? table("BGP sessions", ["neighbour", "state", "in", "out"],
        node.sessions.map((each) => [each.link ? this.#choice(each.link, each.peer) : each.neighbour, each.state, count(each.accepted), count(each.sent)])) : "",
      ...Object.entries(node.configuration).map(([name, text]) => this.#fold(`${name}.conf`, text)),
      ...Object.entries(node.log).map(([name, lines]) => this.#fold(`last lines of ${name}'s log`, lines.join("\n"))),
      h("button", { class: "quiet", onclick: () => this.refresh() }, "Read again"),
    ];
  }

  #terminals(node, hasDaemons) {
    if (!this.view.terminal) return "";
    const programs = hasDaemons ? ["vtysh", "shell"] : ["shell"];
    return h("p", { class: "ends" }, ...programs.map((program) => h("button", { onclick: () => this.openTerminal(node, program) }, `Open ${program}`)));
  }

  #link(link) {
    const known = this.view.linkOf(link.name);
    const ways = known ? [[0, link.ends[1].node], [1, link.ends[0].node]] : [];
    return [
      h("p", { class: "muted" }, `${rate(link.rate_bps)} as planned · ${rate(known?.lab_rate_bps ?? 0)} in the lab · MTU ${link.mtu}`),
      h("p", {}, ...ways.map(([way, to]) => h("span", { class: "way" }, `to ${to}: ${shown(this.view.metric, this.view.valueNow(2 * known.index + way))} `))),
      link.session == null ? "" : h("p", {}, h("b", { class: link.session ? "ok" : "down" }, link.session ? "● " : "✕ "), `BGP session ${link.session ? "established" : "down"}`),
      table(`Counted by the kernel, read at ${clock(link.t_ns)}`, ["", ...link.ends.map((end) => end.node)],
        [
          ["carrier", ...link.ends.map((end) => carrier(end.counters))],
          ["carrier lost", ...link.ends.map((end) => end.counters && count(end.counters.carrier_losses))],
          ["sent", ...link.ends.map((end) => end.counters && `${count(end.counters.tx_packets)} packets`)],
          ["", ...link.ends.map((end) => end.counters && size(end.counters.tx_bytes))],
          ["lost on the way", ...link.ends.map((end) => end.counters && count(end.counters.lost))],
          ["dropped here", ...link.ends.map((end) => end.counters && count(end.counters.tc_drops))],
          ["address", ...link.ends.map((end) => end.address ?? "unnumbered")],
        ]),
      queues(link.ends),
      h("p", { class: "ends" }, ...link.ends.map((end) => this.#choice(end.node))),
    ];
  }

  #several({ links, members }) {
    const names = (links ?? members).map((each) => each.name);
    return [h("ul", { class: "names" }, ...names.map((name) => h("li", {}, this.#choice(name))))];
  }

  // A button that chooses another node or link.
  #choice(name, text = name) {
    return h("button", { class: "link", onclick: () => this.pick(name) }, text);
  }

  #fold(title, text) {
    const ontoggle = ({ target }) => this.opened[target.open ? "add" : "delete"](title);
    return h("details", { open: this.opened.has(title), ontoggle }, h("summary", {}, title), h("pre", {}, text));
  }

  // The faults that need nothing but what was chosen.
  #breaking() {
    const { choice } = this;
    if (this.view.readOnly || !(choice.node || choice.link)) return [];
    const key = choice.link ? "link" : choice.node.tier ? "switch" : "server";
    const fitting = this.kinds.filter((kind) => {
      const names = kind.keys.map((each) => each.name);
      const others = kind.keys.filter((each) => each.needed && each.name !== key);
      return names.includes(key) && names.includes("lasts") && !others.length;
    });
    if (!fitting.length) return [];
    const meaning = h("p", { class: "muted" });
    const kind = h("select", { "aria-label": "kind of fault" }, ...fitting.map((each) => h("option", {}, each.name)));
    const lasts = h("select", { "aria-label": "how long" }, ...LASTS.map((each) => h("option", { selected: each === this.lasts }, each)));
    const chosen = [this.kind, ...USUAL].find((name) => fitting.some((each) => each.name === name));
    if (chosen) kind.value = chosen;
    const explain = () => {
      this.kind = kind.value;
      this.lasts = lasts.value;
      meaning.textContent = fitting.find((each) => each.name === kind.value).meaning.replaceAll("`", "");
    };
    kind.addEventListener("change", explain);
    lasts.addEventListener("change", explain);
    explain();
    const refused = h("p", { class: "bad", role: "alert" });
    const button = h("button", { class: "break", type: "submit" }, "Break it");
    const submit = async (event) => {
      event.preventDefault();
      button.disabled = true;
      refused.textContent = "";
      try {
        await post("/faults", { kind: kind.value, keys: { [key]: choice.link?.name ?? choice.node.name, lasts: lasts.value } });
      } catch (error) {
        refused.textContent = error.message;
      }
      button.disabled = false;
    };
    return [h("form", { class: "breaking", onsubmit: submit }, h("h3", {}, "Break it"), kind, " for ", lasts, " ", button, meaning, refused)];
  }
}

function nameOf(choice) {
  return choice.node?.name ?? choice.link?.name ?? choice.title;
}

function carrier(counters) {
  if (!counters) return "unknown";
  return h("b", { class: counters.carrier ? "ok" : "down" }, counters.carrier ? "● yes" : "✕ no");
}

function queues(ports) {
  const rows = ports.flatMap((port) => port.queues.map((queue) => [
    `${port.node}:${port.interface}`, queue.class, count(queue.packets), count(queue.marked), count(queue.dropped), size(queue.depth_bytes),
  ]));
  return rows.length ? table("Queues that had packets", ["port", "class", "packets", "marked", "dropped", "depth"], rows) : "";
}
