// What the page asks its server for. An answer that refuses is an error with the server's words.

const STORE = "rocelab-key";

// The key comes once, behind the # of the address, and stays in this browser for this port.
export function keepKey() {
  if (location.hash.length > 1) {
    localStorage.setItem(STORE, location.hash.slice(1));
    history.replaceState(null, "", "/");
  }
}

function key() {
  return localStorage.getItem(STORE) ?? "";
}

// A WebSocket has no header that a page could choose: the key is one of its subprotocols.
export function connect(path) {
  return new WebSocket(`ws://${location.host}${path}`, ["rocelab", key()]);
}

export async function get(path) {
  return answer(await fetch(path));
}

export async function post(path, body = {}) {
  return answer(await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-rocelab-key": key() },
    body: JSON.stringify(body),
  }));
}

// Packets of a port for some seconds, saved as a pcapng file; how many they are.
export async function capture(port, seconds) {
  const response = await fetch("/capture", {
    method: "POST",
    headers: { "content-type": "application/json", "x-rocelab-key": key() },
    body: JSON.stringify({ port, seconds }),
  });
  if (!response.ok) return answer(response);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = `${port.replaceAll(":", "-")}.pcapng`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  return Number(response.headers.get("x-rocelab-packets"));
}

async function answer(response) {
  if (response.ok) return response.json();
  const text = await response.text();
  let said;
  try {
    said = JSON.parse(text);
  } catch {
    throw new Error(text.trim());
  }
  const problems = (said.problems ?? []).map((each) => [each.key, each.error, each.hint].filter(Boolean).join(": "));
  throw new Error(problems.join("\n") || [said.error, said.hint].filter(Boolean).join(": "));
}
