// Makes the panels of a report answer: the graph, operators, pairs of devices. All numbers and words are made in Python.
// Words become text nodes; the only markup that is put in is that of the report's own pictures and reasons.

const SVG = "http://www.w3.org/2000/svg";
const WIDE = 208, TALL = 54, HEAD = 26, MARGIN = 12;

function make(tag, attributes, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

function draw(tag, attributes, ...inside) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

function tellBytes(count) {
  return `${count.toLocaleString("en-US")} B`;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function fromBase64(text) {
  return Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
}

// -- theme ----------------------------------------------------------------------------------------------

// Light or dark as the page around an element says it: JupyterLab, VS Code, marimo, and pages with `data-theme`. Rules of
// style end where a frame or a shadow begins, as around marimo's widgets, so this goes on to what holds them.
const THEMED = "[data-jp-theme-light], [data-theme=light], [data-theme=dark], .vscode-light, .vscode-dark";

function findThemed(from) {
  let found = null;
  for (let one = from; one && !found; one = one.getRootNode().host) found = one.closest(THEMED);
  return found;
}

function followTheme(from, root) {
  const tell = () => {
    const place = findThemed(from);
    if (place) root.dataset.theme = place.matches("[data-jp-theme-light=false], [data-theme=dark], .vscode-dark") ? "dark" : "light";
    else delete root.dataset.theme; // the system's
    return place;
  };
  const place = tell();
  if (!place) return () => {};
  const observer = new MutationObserver(tell);
  observer.observe(place, { attributes: true });
  return () => observer.disconnect();
}

// -- layout ---------------------------------------------------------------------------------------------

class Layouter {
  // elkjs in a worker; where pages may have none, in this thread.
  constructor(bytes) {
    this.number = 0;
    this.waiting = new Map();
    this.ready = inflate(bytes).then((source) => this.start(source));
  }

  start(source) {
    try {
      const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
      this.worker = new Worker(url);
      this.worker.onerror = (event) => { event.preventDefault(); this.startHere(source); };
    } catch {
      return this.startHere(source);
    }
    return this.register();
  }

  startHere(source) {
    const module = { exports: {} };
    new Function("module", "exports", source)(module, module.exports);
    this.worker = new module.exports.Worker();
    const again = [...this.waiting.values()];
    this.waiting.clear();
    return this.register().then(() => again.forEach((one) => this.ask(one.what).then(one.resolve, one.reject)));
  }

  register() {
    this.worker.onmessage = ({ data }) => {
      const asked = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if (asked) data.error ? asked.reject(new Error(data.error.message || String(data.error))) : asked.resolve(data.data);
    };
    return this.ask({ cmd: "register", algorithms: ["layered"] });
  }

  ask(what) {
    return new Promise((resolve, reject) => {
      const id = this.number++;
      this.waiting.set(id, { what, resolve, reject });
      this.worker.postMessage({ id, ...what });
    });
  }

  async layout(graph) {
    await this.ready;
    return this.ask({ cmd: "layout", graph, layoutOptions: {}, options: {} });
  }

  stop() {
    this.ready.then(() => this.worker.terminate && this.worker.terminate(), () => {});
  }
}

const OPTIONS = {
  "elk.algorithm": "layered",
  "elk.direction": "DOWN",
  "elk.hierarchyHandling": "INCLUDE_CHILDREN",
  "elk.edgeRouting": "ORTHOGONAL",
  "elk.spacing.nodeNode": "18",
  "elk.layered.spacing.nodeNodeBetweenLayers": "26",
  "elk.layered.spacing.edgeNodeBetweenLayers": "12",
  "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
  "elk.json.shapeCoords": "ROOT",
  "elk.json.edgeCoords": "ROOT",
};
const STACK = { "elk.padding": `[top=${HEAD + MARGIN},left=${MARGIN},bottom=${MARGIN},right=${MARGIN}]` };

// -- what is shown of the tree ----------------------------------------------------------------------------

function leavesOf(tree, out = []) {
  for (const part of tree) {
    if (typeof part === "number") out.push(part);
    else part.members.forEach((member) => leavesOf(member, out));
  }
  return out;
}

function numberStacks(tree, stacks = []) {
  for (const part of tree) {
    if (typeof part === "number") continue;
    part.id = stacks.push(part) - 1;
    part.members.forEach((member) => numberStacks(member, stacks));
  }
  return stacks;
}

// The graph for elkjs. `shown` has for each operator the one that stands for it, `within` the folded blocks around it.
function findVisible(graph, tree, unfolded) {
  const shown = new Map(), within = new Map();
  const walk = (parts, path) => parts.flatMap((part) => {
    if (typeof part === "number") {
      shown.set(part, part);
      within.set(part, path);
      return [{ id: `n${part}`, width: WIDE, height: TALL }];
    }
    const head = (id) => ({ id, layoutOptions: { ...STACK }, stack: part });
    if (part.times === 1 || unfolded.has(part.id)) {
      return part.members.map((member, k) => ({
        ...head(`s${part.id}.${k}`), member: k, children: walk(member, path),
      }));
    }
    const children = walk(part.members[0], [...path, [part.id, 0]]);
    const first = leavesOf(part.members[0]);
    part.members.slice(1).forEach((member, k) => leavesOf(member).forEach((leaf, at) => {
      shown.set(leaf, shown.get(first[at]));
      within.set(leaf, [...path, [part.id, k + 1]]);
    }));
    return [{ ...head(`s${part.id}`), children }];
  });
  const children = walk(tree, []);
  const edges = new Map();
  for (const [a, b, tensors, nbytes] of graph.edges) {
    if (!shown.has(a) || !shown.has(b)) continue;
    const from = new Map(within.get(a));
    const turned = within.get(b).some(([id, k]) => from.has(id) && from.get(id) !== k);
    const source = shown.get(a), target = shown.get(b), key = `${source}-${target}`;
    if (turned || source === target) continue; // to the next repetition of a block that is drawn once
    const known = edges.get(key);
    if (known) known.more += 1;
    else edges.set(key, { id: `e${key}`, sources: [`n${source}`], targets: [`n${target}`], tensors, nbytes, more: 0 });
  }
  return { root: { id: "root", layoutOptions: OPTIONS, children, edges: [...edges.values()] }, shown };
}

function forLayout(part) {
  const { id, width, height, layoutOptions, children, edges, sources, targets } = part;
  const out = { id, width, height, layoutOptions, sources, targets };
  for (const name of Object.keys(out)) if (out[name] === undefined) delete out[name];
  if (children) out.children = children.map(forLayout);
  if (edges) out.edges = edges.map(forLayout);
  return out;
}

// -- the graph --------------------------------------------------------------------------------------------

class GraphPanel {
  constructor(root, data, layouter, select) {
    Object.assign(this, { root, data, layouter, select, unfolded: new Set(), scale: 1, chosen: null, hits: new Set() });
    this.stacks = numberStacks(data.tree);
    this.room = root.querySelector(".tp-graph");
    this.found = root.querySelector(".tp-found");
    this.search = root.querySelector("input[type=search]");
    this.turn = 0;
    root.querySelector(".tp-tools").addEventListener("click", (event) => this.press(event));
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.hits.size) this.reach([...this.hits][0]);
    });
    this.room.addEventListener("keydown", (event) => this.steer(event));
    this.room.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, event);
    }, { passive: false });
    this.letDrag();
    this.showLegend();
    const fold = root.querySelector("[data-do=fold]");
    if (!this.stacks.some((stack) => stack.times > 1)) fold.hidden = true;
  }

  showLegend() {
    const list = this.root.querySelector(".tp-legend");
    for (const { share, color, count } of this.data.legend) {
      list.append(make("li", {}, make("span", { class: `tp-swatch tp-color${color}` }), `${share} (${count})`));
    }
    const [count, kinds] = this.data.others;
    if (count) list.append(make("li", {}, make("span", { class: "tp-swatch tp-color-2" }), `${kinds} others (${count})`));
  }

  async update() {
    const turn = ++this.turn;
    const { root, shown } = findVisible(this.data, this.data.tree, this.unfolded);
    let laid;
    try {
      laid = await this.layouter.layout(forLayout(root));
    } catch (error) {
      this.room.replaceChildren(make("p", { class: "tp-note" }, `The graph cannot be laid out here: ${error.message}`));
      return;
    }
    if (turn !== this.turn) return; // asked for anew meanwhile
    this.shown = shown;
    this.paint(root, laid);
  }

  paint(asked, laid) {
    const places = new Map(), parts = new Map();
    const gather = (one) => { places.set(one.id, one); (one.children || []).forEach(gather); };
    const remember = (one) => { parts.set(one.id, one); (one.children || []).forEach(remember); };
    gather(laid);
    remember(asked);
    [this.width, this.height] = [laid.width, laid.height];
    const stacks = draw("g"), lines = draw("g"), nodes = draw("g");
    this.items = [];
    const walk = (one) => {
      const part = parts.get(one.id);
      if (part.stack) this.add(stacks, this.drawStack(part, one), one, part.stack);
      if (one.id.startsWith("n")) this.add(nodes, this.drawNode(Number(one.id.slice(1)), one), one, null);
      (one.children || []).forEach(walk);
    };
    walk(laid);
    const told = new Map(asked.edges.map((edge) => [edge.id, edge]));
    for (const edge of laid.edges || []) lines.append(...this.drawEdge(edge, told.get(edge.id)));
    this.svg = draw("svg", { viewBox: `0 0 ${this.width} ${this.height}`, role: "group", "aria-label": "graph of operators" },
      this.tips(), stacks, lines, nodes);
    this.room.replaceChildren(this.svg);
    this.room.dataset.nodes = this.items.filter((item) => item.node !== undefined).length;
    this.resize();
    this.mark();
    const again = this.items.find((item) => item.key === this.current) || this.items.find((item) => item.node === this.shown.get(this.chosen)) || this.items[0];
    if (again) again.element.setAttribute("tabindex", "0");
  }

  add(group, element, place, stack) {
    group.append(element);
    if (stack && stack.times === 1) return; // a frame, with nothing to fold
    const item = { element, stack, key: place.id, x: place.x + place.width / 2, y: stack ? place.y + HEAD / 2 : place.y + place.height / 2 };
    if (!stack) item.node = Number(place.id.slice(1));
    this.items.push(item);
    element.addEventListener("click", () => { if (!this.moved) this.enter(item); });
    element.addEventListener("focus", () => {
      for (const one of this.items) one.element.setAttribute("tabindex", one === item ? "0" : "-1");
      this.current = item.key;
    });
  }

  tips() {
    const tip = (id, kind) => draw("marker", { id: `${this.prefix()}${id}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" },
      draw("path", { d: "M0 0L8 4L0 8z", class: kind }));
    return draw("defs", {}, tip("tip", "tp-tip"), tip("moves", "tp-tip tp-moves"));
  }

  prefix() {
    this.own = this.own || `tp${Math.random().toString(36).slice(2, 8)}-`;
    return this.own;
  }

  drawNode(number, { x, y, width, height }) {
    const node = this.data.nodes[number];
    const words = node.lines.map((line, k) => {
      const text = draw("text", { x: 10, y: 16 + 15 * k, ...(k ? {} : { class: "tp-name" }) });
      text.textContent = line;
      return text;
    });
    const title = draw("title");
    title.textContent = node.kind === "op" ? `${node.name}: ${node.op}, sharded ${node.share}` : `${node.kind} ${node.name}`;
    const label = node.kind === "op" ? `${node.name}, ${node.op}, sharded ${node.share}` : `${node.kind} ${node.name}`;
    const round = node.kind === "op" ? 5 : height / 2;
    return draw("g", {
      class: "tp-node", transform: `translate(${x},${y})`, tabindex: "-1", role: "button", "aria-label": label,
      "data-node": number,
    }, title, draw("rect", { width, height, rx: round, class: `tp-color${node.color}` }), ...words);
  }

  drawStack({ stack, member }, { x, y, width, height }) {
    const count = leavesOf(stack.members[0]).length, isOpen = this.unfolded.has(stack.id);
    const last = stack.first + stack.times - 1;
    const some = stack.times < stack.of ? ` (${stack.first} to ${last} of ${stack.of})` : "";
    const told = stack.times > 1 && !isOpen
      ? `▸ ${stack.times} × this block${some}`
      : `${stack.times > 1 ? "▾ " : ""}block ${stack.first + (member || 0)} of ${stack.of}`;
    const text = draw("text", { x: 10, y: 17 });
    text.textContent = told;
    const acts = stack.times === 1 ? { role: "group" }
      : { role: "button", tabindex: "-1", "aria-expanded": String(isOpen) };
    return draw("g", {
      class: stack.times === 1 ? "tp-stack tp-frame" : "tp-stack", transform: `translate(${x},${y})`,
      "data-stack": stack.id, "aria-label": `${told}, of ${count} operators`, ...acts,
    }, draw("rect", { width, height, rx: 8 }), text);
  }

  drawEdge(edge, { tensors, nbytes, more }) {
    const d = edge.sections.map(({ startPoint, endPoint, bendPoints }) =>
      [startPoint, ...(bendPoints || []), endPoint].map(({ x, y }, k) => `${k ? "L" : "M"}${x} ${y}`).join("")).join("");
    const moves = nbytes > 0;
    const title = draw("title");
    title.textContent = `${tensors.join(", ")}: ${moves ? `${tellBytes(nbytes)} move` : "nothing moves"}${more ? `; and ${more} alike` : ""}`;
    return [draw("path", { d, class: moves ? "tp-line tp-moves" : "tp-line", "data-nbytes": nbytes, "marker-end": `url(#${this.prefix()}${moves ? "moves" : "tip"})` }, title)];
  }

  resize() {
    if (!this.fitted) {
      const wide = this.room.clientWidth - 2;
      this.scale = Math.max(0.65, Math.min(1.1, wide / this.width));
      this.fitted = true;
    }
    this.svg.setAttribute("width", this.width * this.scale);
    this.svg.setAttribute("height", this.height * this.scale);
  }

  zoom(factor, event) {
    const before = this.scale;
    this.scale = Math.max(0.1, Math.min(4, before * factor));
    const box = this.room.getBoundingClientRect();
    const x = event ? event.clientX - box.left : box.width / 2, y = event ? event.clientY - box.top : box.height / 2;
    const left = (this.room.scrollLeft + x) * this.scale / before - x, top = (this.room.scrollTop + y) * this.scale / before - y;
    this.resize();
    this.room.scrollTo(left, top);
  }

  press(event) {
    const button = event.target.closest("button");
    if (!button || !this.svg) return;
    const what = button.dataset.do;
    if (what === "in") this.zoom(1.25);
    if (what === "out") this.zoom(0.8);
    if (what === "fit") { this.fitted = false; this.resize(); this.room.scrollTo(0, 0); }
    if (what === "whole") {
      this.scale = Math.min(this.room.clientWidth / this.width, this.room.clientHeight / this.height);
      this.resize();
    }
    if (what === "fold") {
      const unfold = this.unfolded.size === 0;
      this.unfolded = new Set(unfold ? this.stacks.map((stack) => stack.id) : []);
      button.textContent = unfold ? "fold blocks" : "unfold all";
      this.update();
    }
  }

  enter(item) {
    if (item.stack) {
      const id = item.stack.id;
      const isOpen = this.unfolded.has(id);
      if (isOpen) this.unfolded.delete(id);
      else this.unfolded.add(id);
      this.current = isOpen ? `s${id}` : `s${id}.0`;
      this.update().then(() => this.items.find((one) => one.key === this.current)?.element.focus());
      return;
    }
    this.choose(item.node);
  }

  choose(number) {
    this.chosen = number;
    this.mark();
    this.select(number);
  }

  mark() {
    for (const { element, node } of this.items || []) {
      if (node === undefined) continue;
      element.setAttribute("aria-pressed", String(node === this.shown.get(this.chosen)));
      element.classList.toggle("tp-hit", [...this.hits].some((hit) => this.shown.get(hit) === node));
    }
  }

  // Go to an operator, unfolding the block that stands for it where another one does.
  async reach(number) {
    if (this.shown.get(number) !== number) {
      const around = (parts) => parts.some((part) => typeof part === "number" ? part === number
        : part.members.some((member) => around(member)) && (this.unfolded.add(part.id), true));
      around(this.data.tree);
      await this.update();
    }
    this.choose(number);
    this.items.find((item) => item.node === number)?.element.focus();
  }

  find() {
    const wanted = this.search.value.trim().toLowerCase();
    this.hits.clear();
    if (wanted) this.data.nodes.forEach((node, k) => {
      if ([node.name, node.op, node.share].some((text) => (text || "").toLowerCase().includes(wanted))) this.hits.add(k);
    });
    const shown = [...this.hits].slice(0, 8).map((k) => {
      const button = make("button", { type: "button" }, this.data.nodes[k].lines[0]);
      button.addEventListener("click", () => this.reach(k));
      return button;
    });
    const left = this.hits.size - shown.length;
    const said = !wanted ? [] : [make("span", { class: "tp-note" }, this.hits.size ? (left > 0 ? `and ${left} more` : "") : "nothing has this in its name")];
    this.found.replaceChildren(...shown, ...said);
    this.mark();
  }

  steer(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.items) return;
    const item = this.items.find((one) => one.element === event.target);
    const turns = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 1.25 : 0.8);
    else if (!item) return;
    else if (event.key === "Enter" || event.key === " ") this.enter(item);
    else if (event.key in turns) this.nearest(item, turns[event.key])?.element.focus();
    else if (event.key === "Home") this.extreme((a, b) => a.y < b.y).element.focus();
    else if (event.key === "End") this.extreme((a, b) => a.y > b.y).element.focus();
    else return;
    event.preventDefault();
  }

  extreme(before) {
    return this.items.reduce((best, one) => before(one, best) ? one : best);
  }

  nearest(item, [x, y]) {
    let best = null, least = Infinity;
    for (const one of this.items) {
      const along = (one.x - item.x) * x + (one.y - item.y) * y;
      const across = Math.abs((one.x - item.x) * y) + Math.abs((one.y - item.y) * x);
      const far = along + 2 * across;
      if (one !== item && along > 4 && far < least) [best, least] = [one, far];
    }
    return best;
  }

  letDrag() {
    let from = null;
    this.room.addEventListener("pointerdown", (event) => {
      this.moved = false;
      if (event.pointerType === "mouse" && event.button === 0) from = [event.clientX, event.clientY, this.room.scrollLeft, this.room.scrollTop];
    });
    this.room.addEventListener("pointermove", (event) => {
      if (!from) return;
      const [x, y] = [event.clientX - from[0], event.clientY - from[1]];
      if (!this.moved && Math.hypot(x, y) < 5) return;
      this.moved = true;
      this.room.classList.add("tp-dragged");
      this.room.scrollTo(from[2] - x, from[3] - y);
    });
    for (const end of ["pointerup", "pointerleave", "pointercancel"]) this.room.addEventListener(end, () => {
      from = null;
      this.room.classList.remove("tp-dragged");
    });
  }
}

// -- operators and transfers ------------------------------------------------------------------------------

const HEADS = ["from → to", "tensor", "made by → read by", "cells", "bytes", "why"];

function tabulate(transfers, rows) {
  const words = transfers.words;
  const body = rows.map(([source, target, nbytes, step, tensor, producer, consumer, cells, why]) => {
    const told = [`${source} → ${target}`, words[tensor], `${words[producer]} → ${words[consumer]}`, words[cells], nbytes.toLocaleString("en-US"), words[why]];
    return make("tr", { "data-nbytes": nbytes, "data-step": step },
      ...told.map((text, k) => make("td", { "data-head": HEADS[k], ...(k === 4 ? { class: "tp-number" } : {}) }, text)));
  });
  return make("table", { class: "tp-table tp-cards" },
    make("thead", {}, make("tr", {}, ...HEADS.map((head, k) => make("th", k === 4 ? { class: "tp-number" } : {}, head)))),
    make("tbody", {}, ...body));
}

function listTransfers(transfers, rows, what) {
  const MOST = 10;
  const nbytes = rows.reduce((sum, row) => sum + row[2], 0);
  const head = make("p", { class: "tp-note" }, `${what}: ${rows.length.toLocaleString("en-US")} transfer${rows.length === 1 ? "" : "s"}, ${tellBytes(nbytes)}`);
  if (!rows.length) return [head];
  const room = make("div", {}, tabulate(transfers, rows.slice(0, MOST)));
  if (rows.length <= MOST) return [head, room];
  const more = make("button", { type: "button", class: "tp-more" }, `show all ${rows.length.toLocaleString("en-US")}`);
  more.addEventListener("click", () => { room.replaceChildren(tabulate(transfers, rows)); more.remove(); });
  return [head, room, make("div", { class: "tp-tools" }, more)];
}

function showPairs(root, transfers) {
  const map = root.querySelector(".tp-map"), list = root.querySelector(".tp-pairs");
  if (!map) return;
  const cells = [...map.querySelectorAll("td")];
  const show = (cell) => {
    const [a, b] = cell.dataset.from.split(",").map(Number), [c, d] = cell.dataset.to.split(",").map(Number);
    const rows = transfers.rows.filter(([source, target]) => a <= source && source <= b && c <= target && target <= d);
    for (const one of cells) one.setAttribute("aria-pressed", String(one === cell));
    const name = (first, last) => first === last ? `device ${first}` : `devices ${first} to ${last}`;
    list.replaceChildren(...listTransfers(transfers, rows, `From ${name(a, b)} to ${name(c, d)}`));
    list.dataset.nbytes = rows.reduce((sum, row) => sum + row[2], 0);
    if (transfers.left) list.append(make("p", { class: "tp-note" }, `Of ${transfers.left} smaller transfers the rows are not in this file; the map counts them.`));
  };
  cells.forEach((cell, k) => {
    cell.setAttribute("role", "button");
    cell.setAttribute("aria-pressed", "false");
    cell.setAttribute("tabindex", k === 0 ? "0" : "-1");
    cell.addEventListener("click", () => show(cell));
    cell.addEventListener("keydown", (event) => {
      const columns = map.tHead.rows[0].cells.length - 1;
      const turns = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
      if (event.key === "Enter" || event.key === " ") show(cell);
      else if (event.key in turns && cells[k + turns[event.key]]) {
        for (const one of cells) one.setAttribute("tabindex", one === cells[k + turns[event.key]] ? "0" : "-1");
        cells[k + turns[event.key]].focus();
      } else return;
      event.preventDefault();
    });
  });
}

function showOperator(room, data, number) {
  const node = data.graph.nodes[number];
  const title = make("h2", {}, node.name);
  if (node.kind !== "op") {
    room.replaceChildren(title, make("p", {}, node.lines[1]));
    return;
  }
  const head = data.operators[number], mine = data.transfers.rows;
  const words = data.transfers.words;
  const inside = [title, make("ul", {}, ...head.facts.map((fact) => make("li", {}, fact)))];
  if (head.key === null) inside.push(make("p", { class: "tp-note" }, "This operator is not explained in the file: there are too many that differ. plan.explain tells it."));
  else {
    const { picture, reasons } = data.explained[head.key];
    if (head.key !== node.name) inside.push(make("p", { class: "tp-note" }, `What follows is of ${head.key}, which is alike: the same shapes, sharding and bytes.`));
    const why = make("div", { class: "tp-reasons" }), shapes = make("div");
    why.innerHTML = reasons;
    shapes.innerHTML = picture;
    inside.push(make("h3", {}, "why it is sharded so"), why, make("h3", {}, "its index box in parts, and what they read and write"), shapes);
  }
  const into = mine.filter((row) => words[row[6]] === node.name);
  const out = mine.filter((row) => words[row[5]] === node.name);
  inside.push(make("h3", {}, "what moves for it"), ...listTransfers(data.transfers, into, "It reads"), ...listTransfers(data.transfers, out, "Of what it makes"));
  room.replaceChildren(...inside);
  room.scrollTop = 0;
}

// Lets the panels in `root` answer; the promise is kept once the graph is there.
function explore(root, data, layouter) {
  showPairs(root, data.transfers);
  const detail = root.querySelector(".tp-detail");
  const panel = new GraphPanel(root.querySelector("[data-panel=graph]"), data.graph, layouter, (number) => showOperator(detail, data, number));
  const first = data.graph.nodes.reduce((best, node, k) => node.kind === "op" && (best < 0 || node.nbytes > data.graph.nodes[best].nbytes) ? k : best, -1);
  return panel.update().then(() => {
    if (first >= 0 && panel.shown) panel.choose(first);
    root.dataset.ready = String(Math.round(performance.now()));
  });
}
