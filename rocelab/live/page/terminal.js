// A terminal of a node, below the events: what its program writes and what is typed, by WebSocket.

import { onTheme, style } from "./format.js";
import { connect } from "./requests.js";

const UNREACHED = "No terminal: the browser, or what is between it and rocelab live, lets no WebSocket through.\r\n"
  + "`rocelab shell` and `rocelab vtysh` on its machine do the same.\r\n";

export class NodeTerminal {
  constructor(section) {
    this.section = section;
    this.title = section.querySelector("h2");
    this.screen = section.querySelector("#screen");
    section.querySelector("button").addEventListener("click", () => this.close());
    onTheme(() => {
      if (this.terminal) this.terminal.options.theme = theme();
    });
    new ResizeObserver(() => this.fit?.fit()).observe(this.screen);
  }

  // `program`: vtysh or shell. Another terminal that is open ends.
  async open(node, program) {
    const [{ Terminal }, { FitAddon }] = await Promise.all([import("./vendor/xterm.mjs"), import("./vendor/xterm-addon-fit.mjs")]);
    this.close();
    this.title.textContent = `${program} of ${node}`;
    this.section.hidden = false;
    const terminal = new Terminal({ fontFamily: "ui-monospace, DejaVu Sans Mono, monospace", fontSize: 13, theme: theme() });
    this.terminal = terminal;
    this.fit = new FitAddon();
    terminal.loadAddon(this.fit);
    terminal.open(this.screen);
    this.fit.fit();
    terminal.focus();
    // All other keys are the program's: this one leads out of the terminal.
    terminal.attachCustomKeyEventHandler((event) => !(event.key === "Tab" && event.shiftKey));
    if (window.WebSocket) this.#relay(terminal, connect(`/terminal/${encodeURIComponent(node)}?program=${program}`));
    else terminal.write(UNREACHED);
  }

  #relay(terminal, socket) {
    this.socket = socket;
    const send = (message) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(message);
    };
    const size = () => send(JSON.stringify({ columns: terminal.cols, rows: terminal.rows }));
    socket.binaryType = "arraybuffer";
    let isOpen = false;
    socket.onopen = () => {
      isOpen = true;
      size();
    };
    // An empty message: it is on the screen, and there may be another one.
    socket.onmessage = ({ data }) => terminal.write(new Uint8Array(data), () => send(new Uint8Array()));
    socket.onclose = () => terminal.write(isOpen ? "\r\nThe terminal has ended.\r\n" : UNREACHED);
    terminal.onData((typed) => send(new TextEncoder().encode(typed)));
    terminal.onResize(size);
  }

  close() {
    if (!this.terminal) return;
    this.socket.onclose = null;
    this.socket.close();
    this.terminal.dispose();
    this.terminal = this.fit = null;
    this.section.hidden = true;
  }
}

function theme() {
  return { background: style("--card"), foreground: style("--text"), cursor: style("--text"), selectionBackground: style("--chosen") };
}
