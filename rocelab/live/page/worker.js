// The one connection of a browser to its server: all tabs of the page share it (SharedWorker); in a
// browser without shared workers, as on Android, each tab has one, whose first message is its port.
// It keeps what a tab that opens later has to be told: recent events and the newest values.
"use strict";

const MOST_EVENTS = 2000;
const SILENT_MS = 10000; // samples come twice a second: after so long the connection is dead
const LOOK_MS = 1000;
const tabs = new Set();
const waiting = new Set();
let source = null;
let metric = null;
let events = [];
let values = {};
let sampled = null;
let lastId = "";
let heard = 0;
let ended = ""; // why there is no server any more, if it said so
let connection = { up: false, refused: false };

self.onmessage = ({ ports }) => self.onconnect({ ports });
self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data.close) {
      tabs.delete(port);
      waiting.delete(port);
      return;
    }
    if (data.metric !== metric) {
      metric = data.metric;
      open();
    }
    if (!tabs.has(port)) {
      waiting.add(port);
      welcome();
    } else {
      tell({ kind: "metric", data: metric });
    }
  };
};

// Another metric is another stream, whose first sample has all values.
function open() {
  if (source) source.close();
  heard = Date.now();
  values = {};
  source = new EventSource(`/events?metric=${metric}&since=${lastId}`);
  source.onopen = () => {
    ended = "";
    connect({ up: true, refused: false });
    welcome();
  };
  source.onerror = () => connect({ up: false, refused: source.readyState === EventSource.CLOSED });
  source.addEventListener("end", ({ data }) => {
    ended = JSON.parse(data).text;
    connect({ up: false, refused: false });
  });
  for (const kind of ["fabric", "event", "sample"]) {
    source.addEventListener(kind, ({ data, lastEventId }) => take(kind, JSON.parse(data), lastEventId));
  }
}

function connect(now) {
  connection = { ...now, ended };
  tell({ kind: "connection", data: connection });
}

// A connection that has gone without a word, as of a tunnel, or that was refused for a while.
setInterval(() => {
  if (!source || Date.now() - heard < SILENT_MS) return;
  if (connection.up) connect({ up: false, refused: false });
  open();
}, LOOK_MS);

function take(kind, data, id) {
  heard = Date.now();
  lastId = id;
  if (kind === "fabric") {
    events = [];
    values = {};
    data.id = id;
  } else if (kind === "event") {
    events.push({ kind, data, id });
    if (events.length > MOST_EVENTS) events.shift();
  } else {
    if (data.metric !== metric) return;
    Object.assign(values, data.values);
    sampled = data;
  }
  tell({ kind, data, id });
}

function tell(message) {
  for (const port of tabs) port.postMessage(message);
}

// A tab gets the state as of now; what the events before it have changed is in it already.
async function welcome() {
  if (!waiting.size) return;
  let fabric;
  try {
    const answer = await fetch("/fabric.json");
    if (!answer.ok) {
      for (const port of waiting) port.postMessage({ kind: "connection", data: { up: false, refused: true } });
      return;
    }
    fabric = await answer.json();
  } catch {
    return; // the server is away: once it is back, `onopen` comes here again
  }
  for (const port of waiting) {
    port.postMessage({ kind: "connection", data: connection });
    port.postMessage({ kind: "fabric", data: fabric });
    for (const event of events) port.postMessage(event);
    port.postMessage({ kind: "metric", data: metric });
    if (sampled) port.postMessage({ kind: "sample", data: { ...sampled, metric, values } });
    tabs.add(port);
  }
  waiting.clear();
}
