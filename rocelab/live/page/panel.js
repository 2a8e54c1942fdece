// The side panel of what was chosen: what it is and how it is, how to break it, the plots that matter,
// and tabs with the rest. Moved back in time, it shows what held then, and has no buttons.

import { h, table, update } from "./elements.js";
import { SIGNS, STATES, clock, shown } from "./format.js";
import { count, counted, rate, size } from "./quantities.js";
import { capture, get, post } from "./requests.js";
import { Plots } from "./plots.js";
import { condition } from "./timeline.js";

const EVERY_MS = 1000;
const SOON_MS = 250;
const LASTS = ["1s", "3s", "10s", "30s", "2m"];
const CAPTURE_S = 5;

// The kind that is offered first of a link, a switch and a server.
const USUAL = ["carrier-down", "power-loss", "host-pause"];

export class Panel {
  constructor(section, { pick, openTerminal, view }) {
    [this.heading, this.content] = section.children;
    this.nothing = [...this.content.childNodes];
    this.pick = pick;
    this.openTerminal = openTerminal;
    this.view = view;
    this.choice = null;
    this.tab = "Ports";
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
    this.state = h("div", { class: "state" }, h("p", { class: "muted" }, "reading"));
    this.facts = h("div", {});
    this.plots?.close();
    this.plots = this.#plots(choice);
    this.captured = h("p", { class: "muted", role: "status" });
    this.content.replaceChildren(this.state, ...this.#breaking(), this.plots?.element ?? "", this.captured, this.facts);
    this.refresh();
    this.#plot();
  }

  // Another time is looked at, or now.
  lookAt() {
    if (this.choice) this.refresh();
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
      made = await this.#made(choice);
    } catch (error) {
      made = { state: [h("p", { class: "bad" }, error.message)], facts: [] };
    }
    if (this.choice !== choice) return;
    update(this.state, h("div", {}, ...made.state));
    update(this.facts, h("div", {}, ...made.facts));
  }

  async #made(choice) {
    if (choice.links || choice.members) return { state: [], facts: this.#several(choice) };
    if (this.view.past) return this.#past(choice);
    if (choice.node) return this.#node(await get(`/node/${encodeURIComponent(choice.node.name)}`));
    return this.#link(await get(`/link?name=${encodeURIComponent(choice.link.name)}`));
  }

  // A link's counters come from the sampler; a node's sessions are asked of its bgpd: not for ever.
  #follow() {
    if (document.hidden) return;
    if (this.choice?.link && !this.view.past) this.refresh();
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
    const several = node.networks.length > 1 && `in ${node.networks.join(" and ")}`;
    const facts = [node.role, several || node.zone, node.asn && `AS ${node.asn}`, node.loopback].filter(Boolean);
    const daemons = Object.entries(node.daemons).map(([name, pid]) => `${name} ${pid ? `(${pid})` : "is dead"}`);
    const folded = (texts) => Object.entries(texts).flatMap(([name, text]) => [h("h4", {}, name), h("pre", {}, text)]);
    const logs = Object.entries(node.log).map(([name, lines]) => [`${name}, its last lines`, lines.join("\n")]);
    return {
      state: [
        h("p", {}, h("b", { class: state }, `${SIGNS[state]} `), node.condition ? condition(node.condition) : "cannot be read"),
        h("p", { class: "muted" }, [...facts, ...daemons].join(" · ")),
        this.#terminals(node.name, daemons.length),
        node.problem ? h("p", { class: "down" }, node.problem) : "",
      ],
      facts: this.#tabs({
        Ports: [this.#ports(node), queues(node.interfaces), h("button", { class: "quiet", onclick: () => this.refresh() }, "Read again")],
        BGP: node.sessions.length ? [table("BGP sessions", ["interface", "neighbour", "state", "in", "out"],
          node.sessions.map((each) => [each.neighbour, each.link ? this.#choice(each.link, each.peer) : each.neighbour, each.state, count(each.accepted), count(each.sent)]))] : [],
        Configuration: folded(node.configuration),
        Log: folded(Object.fromEntries(logs)),
      }),
    };
  }

  #ports(node) {
    const several = node.networks.length > 1 ? ["network"] : [];
    return table(`Ports, counted by the kernel, read at ${clock(node.t_ns)}`, ["port", ...several, "carrier", "sent", "received", "lost", ""],
      node.interfaces.filter((each) => this.view.has(each.network)).map((each) => [
        this.#choice(each.link, portOf(each.interface, each.peer.split(":")[0])), ...several.map(() => each.network), carrier(each.counters),
        ...["tx_packets", "rx_packets", "lost"].map((key) => each.counters && count(each.counters[key])),
        this.#capture(each),
      ]));
  }

  // Tabs of what there is; the one that was chosen last stays chosen.
  #tabs(contents) {
    const titles = Object.keys(contents).filter((title) => contents[title].length);
    if (!titles.length) return [];
    const chosen = titles.includes(this.tab) ? this.tab : titles[0];
    const choose = (title) => {
      this.tab = title;
      this.refresh();
    };
    const move = (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = titles[(titles.indexOf(chosen) + step + titles.length) % titles.length];
      choose(next);
      event.currentTarget.parentElement.querySelector(`[data-tab="${next}"]`)?.focus();
    };
    return [
      h("div", { class: "tabs", role: "tablist", "aria-label": "about it" }, ...titles.map((title) => h("button", {
        role: "tab", "data-tab": title, "aria-selected": String(title === chosen), tabindex: title === chosen ? "0" : "-1", onclick: () => choose(title), onkeydown: move,
      }, title))),
      h("div", { role: "tabpanel", "aria-label": chosen }, ...contents[chosen]),
    ];
  }

  #terminals(node, hasDaemons) {
    if (!this.view.terminal) return "";
    const programs = hasDaemons ? ["vtysh", "shell"] : ["shell"];
    return h("p", { class: "ends" }, ...programs.map((program) => h("button", { onclick: () => this.openTerminal(node, program) }, `Open ${program}`)));
  }

  // Packets of a port as a file, and the line that shows them as they come.
  #capture({ node, interface: name }) {
    if (this.view.readOnly) return "";
    const port = `${node}:${name}`;
    const begin = async ({ target }) => {
      target.disabled = true;
      this.captured.textContent = `capturing at ${port} for ${CAPTURE_S} s`;
      try {
        const packets = await capture(port, CAPTURE_S);
        this.captured.replaceChildren(`${counted(packets, "packet")} of ${port} saved. As they come: `, h("code", {}, `rocelab capture ${this.view.lab()} ${port} -o - | wireshark -k -i -`));
      } catch (error) {
        this.captured.textContent = error.message;
      }
      target.disabled = false;
    };
    return h("button", { class: "quiet", title: `${CAPTURE_S} s of ${port} as pcapng`, onclick: begin }, "Capture");
  }

  #link(link) {
    const known = this.view.linkOf(link.name);
    const session = link.session == null ? "" : h("span", {}, h("b", { class: link.session ? "ok" : "down" }, link.session ? "● " : "✕ "), `BGP session ${link.session ? "established" : "down"}`);
    return {
      state: [
        h("p", {}, ...this.#carrier(known), " ", session),
        h("p", { class: "muted" }, `${link.network ? `${link.network} · ` : ""}${rate(link.rate_bps)} as planned · ${rate(known?.lab_rate_bps ?? 0)} in the lab · MTU ${link.mtu}`),
        this.#values(known),
      ],
      facts: this.#tabs({
        Ports: [table(`Counted by the kernel, read at ${clock(link.t_ns)}`, ["", ...link.ends.map((end) => `${end.node}:${end.interface}`)],
          [
            ["carrier", ...link.ends.map((end) => carrier(end.counters))],
            ["carrier lost", ...link.ends.map((end) => end.counters && count(end.counters.carrier_losses))],
            ["sent", ...link.ends.map((end) => end.counters && counted(end.counters.tx_packets, "packet"))],
            ["", ...link.ends.map((end) => end.counters && size(end.counters.tx_bytes))],
            ["lost on the way", ...link.ends.map((end) => end.counters && count(end.counters.lost))],
            ["dropped here", ...link.ends.map((end) => end.counters && count(end.counters.tc_drops))],
            ["address", ...link.ends.map((end) => end.address ?? "unnumbered")],
            ["", ...link.ends.map((end) => this.#capture(end))],
          ]),
        queues(link.ends)],
      }).concat(h("p", { class: "ends" }, ...link.ends.map((end) => this.#choice(end.node)))),
    };
  }

  #carrier(link) {
    const dark = link && this.view.isDark(link);
    return [h("b", { class: dark ? "down" : "ok" }, dark ? "✕ " : "● "), dark ? "without carrier" : "has carrier"];
  }

  #values(link) {
    if (!link) return "";
    const ways = [[0, link.b], [1, link.a]];
    return h("p", {}, ...ways.map(([way, to]) => h("span", { class: "way" }, `to ${to}: ${shown(this.view.metric, this.view.value(2 * link.index + way))} `)));
  }

  // What held at the time that is looked at.
  #past({ node, link }) {
    const at = h("p", { class: "muted" }, `As it was at ${clock(this.view.past.t_ns, 1)}`);
    if (link) return { state: [h("p", {}, ...this.#carrier(link)), this.#values(link), at], facts: [] };
    const state = this.view.stateOf({ node });
    const rows = this.view.linksOf(node.name).map((each) => {
      const out = each.a === node.name ? 0 : 1;
      const value = (way) => shown(this.view.metric, this.view.value(2 * each.index + way));
      const [own, peer] = each.a === node.name ? [each.a_interface, each.b] : [each.b_interface, each.a];
      return [portOf(own, peer), h("span", {}, ...this.#carrier(each)), value(out), value(1 - out)];
    });
    return {
      state: [h("p", {}, h("b", { class: state }, `${SIGNS[state]} `), STATES[state]), at],
      facts: [table(`Ports then, by ${this.view.metric}`, ["port", "carrier", "out", "in"], rows)],
    };
  }

  #several({ links, members }) {
    if (!links) return [h("ul", { class: "names" }, ...members.map(({ name }) => h("li", {}, this.#choice(name))))];
    return [table(`${counted(links.length, "link")}, by ${this.view.metric}`, ["link", "", "up", "down"], links.map((link) => [
      this.#choice(link.name), h("span", {}, ...this.#carrier(link)), ...[0, 1].map((way) => shown(this.view.metric, this.view.value(2 * link.index + way))),
    ]))];
  }

  // A button that chooses another node or link.
  #choice(name, text = name) {
    return h("button", { class: "link", onclick: () => this.pick(name) }, text);
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
    return [h("form", { class: "breaking", onsubmit: submit }, kind, " for ", lasts, " ", button, meaning, refused)];
  }
}

function nameOf(choice) {
  return choice.node?.name ?? choice.link?.name ?? choice.title;
}

// A port by its name, which mostly is that of its neighbour and of which parallel link it is.
function portOf(name, peer) {
  return name.startsWith(peer) ? name : `${name} → ${peer}`;
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
