// Where each node is: tiers in rows, the top tier above, zones side by side.
//
// From the fabric, the folded zones and the size of the stage it makes boxes in the units of the
// stage, edges between boxes with the links that they stand for, captions of tiers, frames of zones.

const NARROW = 84;
export const NARROW_STAGE = 480; // a phone's, whose width is for nodes alone
const MOST_ROW = 260; // from the top of one tier to that of the next
const FLAT_ROW = 72; // on a low stage
const FLAT_FRAMED_ROW = 84; // with frames between tiers
const BOX_HEIGHT = 34;
const SERVER_HEIGHT = 22;
const GAP = 10;
const ZONE_GAP = 36;
const MOST_STACKED = 8;
export const TRUNK = 14; // how far servers of a column are to the right of their switch's edge
export const MATRIX_FROM = 40; // as many leaves of a zone are a matrix, not a graph

const ROLES = {
  atsw: "ATSW · aggregation", core: "core", ctsw: "CTSW · spines", spine: "spines", agg: "aggregation",
  rtsw: "RTSW · racks", leaf: "leaves", tor: "ToR", edge: "edge", server: "servers",
};

export function leavesOf(fabric, zone) {
  return fabric.nodes.filter((node) => node.tier === 1 && node.zone === zone);
}

export function layout(fabric, folded, width, height) {
  // A wide fabric is drawn smaller: its tiers are then farther apart, to use the stage.
  const wide = arranged(fabric, folded, width, height);
  const shrunk = Math.min(1, width / (wide.width + (width < NARROW_STAGE ? 12 : 200)));
  return shrunk < 0.95 ? arranged(fabric, folded, width, height / shrunk) : wide;
}

function arranged(fabric, folded, width, height) {
  const { nodes } = fabric;
  const boxes = [];
  const boxOf = new Map();
  const frames = [];
  const tiers = [...new Set(nodes.filter((node) => node.tier > 0).map((node) => node.tier))].sort((a, b) => b - a);
  const bands = bandsOf(nodes);
  const least = bands.length > 1 ? FLAT_FRAMED_ROW : FLAT_ROW;
  const pitch = Math.max(least, Math.min(MOST_ROW, (height - 200) / Math.max(1, tiers.length)));
  const rowOf = new Map(tiers.map((tier, index) => [tier, index * pitch]));
  const bottom = tiers.length ? (tiers.length - 1) * pitch : 0;

  const add = (box, members) => {
    boxes.push(box);
    for (const node of members) boxOf.set(node.name, box);
  };
  const row = (members, left, zoneWidth, y, room) => {
    const box = boxWidth(members.length, room);
    const total = members.length * (box + GAP) - GAP;
    members.forEach((node, index) => add(
      { key: node.name, node, x: left + (zoneWidth - total) / 2 + index * (box + GAP), y, width: box, height: BOX_HEIGHT, narrow: box < NARROW },
      [node],
    ));
  };

  // The zones of a band side by side; returns their width.
  const place = (zones) => {
    const room = Math.max(300, (width - 150) / Math.max(1, zones.length));
    let x = 0;
    for (const zone of zones) {
      const inside = nodes.filter((node) => node.zone === zone);
      const lowest = Math.max(...inside.filter((node) => node.tier > 0).map((node) => rowOf.get(node.tier)));
      if (folded.has(zone)) {
        const box = Math.min(200, Math.max(96, room - ZONE_GAP));
        add({ key: zone, zone, members: inside, x, y: lowest, width: box, height: 52 }, inside);
        x += box + ZONE_GAP;
        continue;
      }
      const switches = tiers.map((tier) => inside.filter((node) => node.tier === tier));
      const servers = inside.filter((node) => node.tier === 0);
      const stacks = stacksOf(fabric, servers);
      const rows = stacks ? switches : [...switches, servers];
      const zoneWidth = Math.max(200, ...rows.map((each) => each.length * (boxWidth(each.length, room) + GAP) - GAP));
      const before = boxes.length;
      switches.forEach((members, index) => row(members, x, zoneWidth, rowOf.get(tiers[index]), room));
      if (stacks) placeStacks(stacks, boxOf, add, pitch);
      else if (servers.length) row(servers, x, zoneWidth, bottom + pitch, room);
      if (zones.length > 1) {
        const own = boxes.slice(before);
        const top = Math.min(...own.map((box) => box.y));
        const depth = Math.max(...own.map((box) => box.y + box.height));
        frames.push({ zone, x: x - 14, y: top - 30, width: zoneWidth + 28, height: depth - top + 44 });
      }
      x += zoneWidth + ZONE_GAP;
    }
    return x - ZONE_GAP;
  };

  const placed = bands.map((zones) => {
    const [box, frame] = [boxes.length, frames.length];
    return { width: place(zones), boxes: boxes.slice(box), frames: frames.slice(frame) };
  });
  const whole = Math.max(200, ...placed.map((band) => band.width));
  // A narrower band is in the middle.
  for (const band of placed) for (const each of [...band.boxes, ...band.frames]) each.x += (whole - band.width) / 2;
  const room = Math.max(300, width - 150);
  for (const tier of tiers) {
    const joining = nodes.filter((node) => node.zone == null && node.tier === tier);
    if (joining.length) row(joining, 0, whole, rowOf.get(tier), room);
  }
  const loose = nodes.filter((node) => node.zone == null && node.tier === 0);
  if (loose.length) row(loose, 0, whole, bottom + pitch, room);
  // Switches that join zones, or servers of none, can be wider than all zones together.
  const over = Math.max(0, ...boxes.map((box) => -box.x));
  for (const each of [...boxes, ...frames]) each.x += over;
  const deepest = Math.max(...boxes.map((box) => box.y + box.height), BOX_HEIGHT);
  return { boxes, boxOf, frames, edges: edgesOf(fabric, boxOf), captions: captionsOf(boxes), width: whole + 2 * over, height: deepest };
}

// The zones of each band, the upper one first: planes above segments, which have the servers.
function bandsOf(nodes) {
  const lowestOf = d3.rollup(nodes.filter((node) => node.zone != null), (members) => d3.min(members, (node) => node.tier), (node) => node.zone);
  // A zone without servers is in the lowest band too.
  const groups = d3.groups([...lowestOf], ([, tier]) => Math.max(1, tier));
  return d3.sort(groups, ([tier]) => -tier).map(([, zones]) => zones.map(([zone]) => zone));
}

function boxWidth(number, room) {
  return Math.max(62, Math.min(112, room / Math.max(1, number) - GAP));
}

// Servers by their switch, if each has one only; else null: they are a row of their own.
function stacksOf(fabric, servers) {
  const stacks = new Map();
  for (const server of servers) {
    const above = new Set((fabric.linksOf.get(server.name) ?? []).map((link) => link.b));
    if (above.size !== 1) return null;
    const [leaf] = above;
    if (!stacks.has(leaf)) stacks.set(leaf, []);
    stacks.get(leaf).push(server);
  }
  return stacks;
}

// A single server is below its switch; several are a column beside a trunk.
function placeStacks(stacks, boxOf, add, pitch) {
  for (const [leaf, servers] of stacks) {
    const above = boxOf.get(leaf);
    if (!above) continue;
    const indent = servers.length > 1 && servers.length <= MOST_STACKED ? TRUNK : 0;
    const at = (index) => ({
      x: above.x + indent, y: above.y + pitch * 0.7 + index * (SERVER_HEIGHT + 5), width: above.width - indent, height: SERVER_HEIGHT, narrow: above.width < NARROW,
    });
    if (servers.length > MOST_STACKED) {
      add({ key: `servers of ${leaf}`, members: servers, leaf, ...at(0), height: 34 }, servers);
    } else {
      servers.forEach((server, index) => add({ key: server.name, node: server, stacked: indent > 0, ...at(index) }, [server]));
    }
  }
}

// Links between the same two boxes are one edge; those inside a folded zone are none.
function edgesOf(fabric, boxOf) {
  const edges = new Map();
  for (const link of fabric.links) {
    const a = boxOf.get(link.a);
    const b = boxOf.get(link.b);
    if (!a || !b || a === b) continue;
    const key = `${a.key}|${b.key}`;
    if (!edges.has(key)) edges.set(key, { a, b, links: [] });
    edges.get(key).links.push(link);
  }
  return [...edges.values()];
}

function captionsOf(boxes) {
  const rows = new Map();
  for (const box of boxes) {
    if (!box.node) continue;
    const known = rows.get(box.node.role);
    if (!known || box.y < known.y) rows.set(box.node.role, box);
  }
  return [...rows].map(([role, box]) => ({ text: ROLES[role] ?? role, y: box.y + box.height / 2 }));
}
