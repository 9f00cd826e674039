// Everything that is drawn. Coordinates of the plot are those of its viewBox, 600 x 400.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600, HEIGHT = 400;
let view = { x: [-3, 3], y: [-2, 2] };
export const setView = (v) => { view = v; };

export const toScreen = ([x, y]) => [
  ((x - view.x[0]) / (view.x[1] - view.x[0])) * WIDTH,
  HEIGHT - ((y - view.y[0]) / (view.y[1] - view.y[0])) * HEIGHT,
];
export const toWorld = ([px, py]) => [
  view.x[0] + (px / WIDTH) * (view.x[1] - view.x[0]),
  view.y[0] + ((HEIGHT - py) / HEIGHT) * (view.y[1] - view.y[0]),
];

export function element(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
const number = (v) => v.toFixed(1);
const polyline = (points, attributes) =>
  element("polyline", { points: points.map(([x, y]) => `${number(x)},${number(clamp(y, -2000, 2400))}`).join(" "), ...attributes });

// ---- the plot ------------------------------------------------------------------------------------

export function drawScene(svg, state) {
  const nodes = [];
  const [ox, oy] = toScreen([0, 0]);
  nodes.push(element("line", { x1: 0, x2: WIDTH, y1: oy, y2: oy, class: "axis" }));
  nodes.push(element("line", { x1: ox, x2: ox, y1: 0, y2: HEIGHT, class: "axis" }));
  const shape = state.shape;
  if (shape?.lines) for (const line of shape.lines) nodes.push(...neuronLine(line));
  for (const run of state.runShapes ?? []) nodes.push(...outline(run, "run"));
  if (shape) nodes.push(...outline(shape, "curve"));
  for (const kink of shape?.kinks ?? []) {
    const [cx, cy] = toScreen(kink);
    nodes.push(element("circle", { cx, cy, r: 5, class: "dot" }));
  }
  state.points.forEach((point, k) => nodes.push(marker(point, k)));
  if (state.cross) {
    const [x, y] = toScreen(state.cross);
    nodes.push(element("path", { d: `M${x - 9} ${y}H${x + 9}M${x} ${y - 9}V${y + 9}`, class: "cross" }));
  }
  svg.replaceChildren(...nodes);
}

function marker(point, k) {
  const [x, y] = toScreen(point), label = point.length > 2 ? point[2] : null;
  const attributes = { class: label === null ? "point" : `point p${label}`, "data-index": k };
  if (label === 1) return element("rect", { x: x - 5, y: y - 5, width: 10, height: 10, ...attributes });
  if (label === 2) return element("path", { d: `M${x} ${y - 7}L${x + 6.5} ${y + 5}H${x - 6.5}Z`, ...attributes });
  return element("circle", { cx: x, cy: y, r: 5.5, ...attributes });
}

function neuronLine([u, v, b]) {
  const length = u * u + v * v;
  if (length < 1e-12) return [];
  const foot = [(-b * u) / length, (-b * v) / length], along = [-v / Math.sqrt(length), u / Math.sqrt(length)];
  const ends = [-12, 12].map((t) => toScreen([foot[0] + t * along[0], foot[1] + t * along[1]]));
  return [element("line", { x1: ends[0][0], y1: ends[0][1], x2: ends[1][0], y2: ends[1][1], class: "neuron" })];
}

function outline(shape, kind) {
  if (shape.x) return [polyline(shape.x.map((x, k) => toScreen([x, shape.y[k]])), { class: kind })];
  return shape.scores.length === 1 ? [element("path", { d: contour(shape.scores[0]), class: kind })] : [];
}

// Where a function on a grid is zero: one piece for every cell that it crosses (marching squares).
function contour(values) {
  const rows = values.length, columns = values[0].length, pieces = [];
  const at = (i, j) => [(j / (columns - 1)) * WIDTH, HEIGHT - (i / (rows - 1)) * HEIGHT];
  for (let i = 0; i + 1 < rows; i++) for (let j = 0; j + 1 < columns; j++) {
    const corners = [[i, j], [i, j + 1], [i + 1, j + 1], [i + 1, j]], cut = [];
    for (let k = 0; k < 4; k++) {
      const [a, b] = [corners[k], corners[(k + 1) % 4]], [va, vb] = [values[a[0]][a[1]], values[b[0]][b[1]]];
      if (va > 0 === vb > 0) continue;
      const t = va / (va - vb), [pa, pb] = [at(...a), at(...b)];
      cut.push([pa[0] + t * (pb[0] - pa[0]), pa[1] + t * (pb[1] - pa[1])]);
    }
    for (let k = 0; k + 1 < cut.length; k += 2) {
      pieces.push(`M${number(cut[k][0])} ${number(cut[k][1])}L${number(cut[k + 1][0])} ${number(cut[k + 1][1])}`);
    }
  }
  return pieces.join("");
}

// Regions of predicted classes, as a transparent picture below the plot.
export function drawField(canvas, scores) {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  if (!scores) return;
  const style = getComputedStyle(document.documentElement);
  const colours = ["--ours", "--descent", "--third"].map((name) => channels(style.getPropertyValue(name)));
  const w = 300, h = 200, image = new ImageData(w, h), rows = scores[0].length, columns = scores[0][0].length;
  const value = (grid, i, j) => {
    const a = Math.min(Math.floor(i), rows - 2), b = Math.min(Math.floor(j), columns - 2), s = i - a, t = j - b;
    return (1 - s) * ((1 - t) * grid[a][b] + t * grid[a][b + 1]) + s * ((1 - t) * grid[a + 1][b] + t * grid[a + 1][b + 1]);
  };
  for (let y = 0; y < h; y++) for (let x = 0; x < w; x++) {
    const i = (1 - y / (h - 1)) * (rows - 1), j = (x / (w - 1)) * (columns - 1);
    const f = scores.map((grid) => value(grid, i, j));
    const best = f.length === 1 ? Number(f[0] > 0) : f.indexOf(Math.max(...f));
    const sorted = [...f].sort((a, b) => b - a);
    const margin = f.length === 1 ? Math.abs(f[0]) : sorted[0] - sorted[1];
    image.data.set([...colours[best], 255 * (0.1 + 0.22 * Math.min(1, margin / 2))], 4 * (y * w + x));
  }
  const small = Object.assign(document.createElement("canvas"), { width: w, height: h });
  small.getContext("2d").putImageData(image, 0, 0);
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

const channels = (hex) => [1, 3, 5].map((k) => parseInt(hex.trim().slice(k, k + 2), 16));

// ---- the charts ----------------------------------------------------------------------------------

const scale = (low, high, from, to) => (v) => from + ((v - low) / (high - low || 1)) * (to - from);
const power = (v) => (v >= 0.001 && v < 1000 ? String(Number(v.toPrecision(2))) : v.toExponential(0));

export function drawPath(svg, path, beta, waiting) {
  if (!path) return svg.replaceChildren(element("text", { x: 4, y: 20 }, waiting ? "computing …" : "appears with the points"));
  const logs = path.betas.map(Math.log10), low = Math.min(...logs), high = Math.max(...logs);
  const x = scale(low, high, 34, 286), most = Math.max(1, ...path.n_neurons), top = Math.max(...path.objectives) || 1;
  const left = scale(0, most, 104, 14), right = scale(0, top, 104, 14);
  const nodes = [
    element("line", { x1: 34, x2: 286, y1: 104, y2: 104, class: "axis" }),
    polyline(logs.map((l, k) => [x(l), right(path.objectives[k])]), { class: "curve", "stroke-width": 2 }),
    polyline(stairs(logs.map((l, k) => [x(l), left(path.n_neurons[k])])), { class: "steps" }),
    element("text", { x: 30, y: 18, "text-anchor": "end" }, most), element("text", { x: 30, y: 107, "text-anchor": "end" }, 0),
    element("text", { x: 290, y: 18 }, power(top)), element("text", { x: 34, y: 119 }, power(10 ** low)),
    element("text", { x: 286, y: 119, "text-anchor": "end" }, power(10 ** high)),
    element("text", { x: 160, y: 128, "text-anchor": "middle" }, "beta"),
    element("text", { x: 34, y: 8 }, "neurons (red)"), element("text", { x: 286, y: 8, "text-anchor": "end" }, "objective (blue)"),
  ];
  const here = Math.log10(beta);
  if (here >= low && here <= high) nodes.push(element("line", { x1: x(here), x2: x(here), y1: 12, y2: 104, class: "here" }));
  svg.replaceChildren(...nodes);
}

const stairs = (points) => points.flatMap((p, k) => (k ? [[p[0], points[k - 1][1]], p] : [p]));

export function drawRuns(svg, runs, certificate) {
  const empty = !runs?.steps.length || !certificate;
  svg.toggleAttribute("hidden", empty);
  if (empty) return svg.replaceChildren();
  const all = runs.objectives.flat().filter((v) => v > 0), bound = Math.max(certificate.lower_bound, 1e-9);
  // the chart closes in on where the runs are, so that small differences show
  const last = runs.objectives.at(-1), ceiling = 1.15 * Math.max(...last, 1.05 * certificate.objective);
  const low = Math.log10(Math.min(bound, certificate.objective, ...all)) - 0.15 * Math.log10(ceiling / bound), high = Math.log10(ceiling);
  const x = scale(0, runs.total, 38, 312), y = scale(low, high, 128, 10);
  const at = (v) => clamp(y(Math.log10(Math.max(v, 1e-12))), 4, 132);
  const nodes = [
    element("rect", { x: 38, width: 274, y: at(bound), height: Math.max(0, 130 - at(bound)), class: "impossible" }),
    element("line", { x1: 38, x2: 312, y1: at(bound), y2: at(bound), class: "bound" }),
    element("line", { x1: 38, x2: 312, y1: at(certificate.objective), y2: at(certificate.objective), class: "level" }),
    ...last.map((_, k) => polyline(runs.steps.map((s, i) => [x(s), at(runs.objectives[i][k])]), { class: "run" })),
    element("text", { x: 34, y: 14, "text-anchor": "end" }, power(10 ** high)),
    element("text", { x: 34, y: at(certificate.objective) + 3, "text-anchor": "end" }, power(certificate.objective)),
    element("text", { x: 175, y: 145, "text-anchor": "middle" }, `${runs.total} steps; no network is in the green`),
  ];
  svg.replaceChildren(...nodes);
}
