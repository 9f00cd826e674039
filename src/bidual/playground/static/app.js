// State, events and requests. One problem at a time; answers to older questions are thrown away.
import { link, parse, unlink } from "./data.js";
import { drawField, drawPath, drawRuns, drawScene, setView, toScreen, toWorld } from "./draw.js";
import { examples } from "./examples.js";

const $ = (id) => document.getElementById(id);
const state = { task: "regression", points: [], shape: null, result: null, path: null, runs: null, runShapes: null, cross: null, words: "" };
let options = null;
const busy = { fit: null, path: null, descent: null };
const timers = {};
const STUCK = 0.01; // more than this above the optimum

// ---- requests ------------------------------------------------------------------------------------

async function post(name, body) {
  busy[name]?.abort();
  const controller = (busy[name] = new AbortController());
  const response = await fetch(`/api/${name}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: controller.signal,
  });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({ error: response.statusText }));
    throw new Error(problem.error);
  }
  return response;
}

const problem = () => ({
  task: state.task, points: state.points, loss: $("loss").value, architecture: $("architecture").value, bias: $("bias").checked,
});
const beta = () => Number((10 ** Number($("beta").value)).toPrecision(3));

function later(name, wait, work) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(() => work().catch((error) => { if (error.name !== "AbortError") say(error.message); }), wait);
}

// A button, and why it cannot be pressed (nothing: it can).
function able(id, reason = "") {
  $(id).disabled = Boolean(reason);
  $(id).title = reason;
}

const say = (text) => { $("message").textContent = text; };

function solvable() {
  if (state.task === "regression") return state.points.length > 0;
  return new Set(state.points.map((p) => p[2])).size > 1;
}

// The points or the kind of network changed: everything is asked anew.
function changed() {
  stop();
  state.path = null;
  state.runs = state.runShapes = null;
  describeRuns();
  fitSoon(80);
  if (solvable()) later("path", 500, path);
  else { busy.path?.abort(); clearTimeout(timers.path); }
  draw();
}

function fitSoon(wait) {
  if (!solvable()) {
    busy.fit?.abort(); clearTimeout(timers.fit);
    state.result = state.shape = null;
    say(state.points.length && state.task === "classification" ? "Add points of another class." : "");
    describe();
    return;
  }
  later("fit", wait, fit);
}

async function fit() {
  const response = await post("fit", { ...problem(), beta: beta() });
  state.result = await response.json();
  state.shape = state.result.shape;
  say(state.words);
  describe();
  draw();
}

async function path() {
  const response = await post("path", { ...problem(), n_betas: 14 });
  state.path = await response.json();
  drawPath($("path"), state.path, beta());
}

async function descend() {
  stop();
  const response = await post("descent", {
    ...problem(), beta: beta(), width: Number($("width").value), runs: Number($("runs").value), seed: Math.floor(Math.random() * 1e6),
    steps: 1500, optimiser: $("optimiser").value, learning_rate: Number($("rate").value),
  });
  state.runs = { steps: [], objectives: [], total: 1500, done: false };
  $("stop").hidden = false;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) await frame(JSON.parse(line));
    }
    state.runs.done = true;
  } finally {
    $("stop").hidden = true;
    describeRuns();
    draw();
  }
}

async function frame(answer) {
  if (answer.error) { say(answer.error); return; }
  state.runs.steps.push(answer.step);
  state.runs.objectives.push(answer.objectives);
  state.runShapes = answer.shapes;
  describeRuns();
  draw();
  await new Promise((resolve) => setTimeout(resolve, 25)); // slow enough to watch
}

function stop() {
  busy.descent?.abort();
  $("stop").hidden = true;
}

// ---- words ---------------------------------------------------------------------------------------

const digits = (v, n = 6) => Number(v.toPrecision(n)).toString();

function describe() {
  const certificate = state.result?.certificate;
  const missing = certificate ? "" : solvable() ? "The best network is not here yet." : "There are not enough points to train on.";
  able("download", missing);
  able("descend", missing || ($("architecture").value === "gated" ? "With fixed gates the problem is convex: gradient descent has nothing to get stuck in." : ""));
  const none = state.points.length ? "" : "There are no points.";
  for (const id of ["undo", "clear", "copy"]) able(id, none);
  $("badge").hidden = !certificate;
  if (!certificate) {
    $("sentence").textContent = "Click some points.";
    $("facts").replaceChildren();
    $("neurons").replaceChildren();
    return;
  }
  const open = certificate.gap > 0.01;
  $("badge").textContent = open ? "proven in part" : "proven";
  $("badge").classList.toggle("open", open);
  const words = certificate.sentence;
  $("sentence").textContent = `${words[0].toUpperCase()}${words.slice(1)}.`;
  const facts = {
    objective: digits(certificate.objective), "no network is below (proven)": digits(certificate.lower_bound),
    neurons: state.result.n_neurons, time: `${Math.max(1, Math.round(1000 * state.result.elapsed))} ms`,
  };
  $("facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
    const row = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name; dd.textContent = value; dd.id = `fact-${name.split(" ")[0]}`;
    row.append(dt, dd);
    return row;
  }));
  describeNeurons();
}

// Where each neuron switches, and what it adds there.
function describeNeurons() {
  const network = state.result.model.network, w = network.weights, regression = state.task === "regression";
  const table = $("neurons");
  if (network.kind !== "two_layer" || !w.hidden_weights.length) {
    table.replaceChildren(row("td", [network.kind === "two_layer" ? "none: a constant is best" : "in the model file"]));
    return;
  }
  const bias = w.hidden_bias ?? w.hidden_weights.map(() => 0);
  const rows = w.hidden_weights.map((u, k) => (regression
    ? [digits(-bias[k] / u[0], 3), u[0] > 0 ? "right" : "left", digits(u[0] * w.output_weights[k][0], 3)]
    : [...u, bias[k], ...w.output_weights[k]].map((v) => digits(v, 3))));
  const head = regression ? ["switches at x", "active to its", "slope added"] : ["w1", "w2", "bias", ...w.output_weights[0].map(() => "output")];
  table.replaceChildren(row("th", head), ...rows.map((cells) => row("td", cells)));
}

function row(kind, cells) {
  const tr = document.createElement("tr");
  tr.append(...cells.map((text) => Object.assign(document.createElement(kind), { textContent: text, ...(kind === "th" ? { scope: "col" } : {}) })));
  return tr;
}

function describeRuns() {
  const runs = state.runs, certificate = state.result?.certificate, list = $("runs-list");
  if (!runs?.objectives.length || !certificate) { list.replaceChildren(); $("verdict").textContent = ""; return; }
  const above = runs.objectives.at(-1).map((v) => v / certificate.objective - 1);
  list.replaceChildren(...above.map((a, k) => {
    const item = document.createElement("li");
    const found = a <= STUCK;
    item.className = found ? "found" : "stuck";
    const percent = Math.abs(a) < 5e-5 ? "0.00" : (100 * a).toFixed(a < 0.1 ? 2 : 0);
    const end = runs.done ? (found ? ": got there" : ": stuck") : "";
    item.textContent = `${digits(runs.objectives.at(-1)[k], 4)}, +${percent} %${end}`.replace("+-", "-");
    return item;
  }));
  const stuck = above.filter((a) => a > STUCK).length;
  $("verdict").textContent = runs.done ? `${stuck} of ${above.length} runs ended more than 1 % above the optimum.` : `step ${runs.steps.at(-1)} of ${runs.total}`;
}

function draw() {
  later("link", 300, remember);
  drawScene($("scene"), state);
  drawField($("field"), state.shape?.scores);
  drawPath($("path"), state.path, beta(), solvable());
  drawRuns($("runs-chart"), state.runs, state.result?.certificate);
}

// ---- data from elsewhere -------------------------------------------------------------------------

const here = () => link({ ...problem(), beta: $("beta").value, width: $("width").value });

// The address of the page always holds the problem.
async function remember() {
  history.replaceState(null, "", state.points.length ? here() : location.pathname);
}

// The problem of the address; whether there is one.
function recall() {
  const held = unlink(location.hash, options);
  if (!held) return false;
  document.querySelector(`[name=task][value=${held.task}]`).checked = true;
  setTask(held.task, held.points);
  $("loss").value = held.loss;
  $("architecture").value = held.architecture;
  $("bias").checked = held.bias;
  $("beta").value = held.beta;
  $("beta-value").textContent = beta();
  if ([...$("width").options].some((option) => Number(option.value) === held.width)) $("width").value = held.width;
  changed();
  return true;
}

function take(text) {
  try {
    const { points, words } = parse(text, state.task, options.view, options.max_points);
    state.points = points;
    edited();
    state.words = words;
    say(words);
  } catch (error) {
    say(error.message);
  }
}

async function copy() {
  await remember();
  await navigator.clipboard.writeText(location.href);
  say("The link is on the clipboard: it holds the points and all settings.");
}

function dropping() {
  const over = (yes) => (event) => { event.preventDefault(); document.body.classList.toggle("dropping", yes); };
  document.addEventListener("dragover", over(true));
  document.addEventListener("dragleave", over(false));
  document.addEventListener("drop", async (event) => {
    over(false)(event);
    const [file] = event.dataTransfer.files;
    if (file && file.size > 1e6) say("The file is too large for this page: bidual fit takes it.");
    else take(file ? await file.text() : event.dataTransfer.getData("text"));
  });
}

// ---- controls ------------------------------------------------------------------------------------

function choices(select, names) {
  select.replaceChildren(...names.map((name) => new Option(name.replaceAll("_", " "), name)));
}

function setTask(task, points) {
  state.task = task;
  $("classes").hidden = task === "regression";
  document.body.dataset.task = task;
  choices($("loss"), options.losses[task]);
  $("example").replaceChildren(...Object.keys(examples[task]).map((name) => new Option(name)), new Option("my own", ""));
  if (!points) { load(Object.keys(examples[task])[0]); return; }
  $("example").value = "";
  state.points = points;
  state.shape = state.result = null;
}

function load(name) {
  if (!name) return;
  state.words = "";
  $("example").value = name;
  state.points = structuredClone(examples[state.task][name]);
  state.shape = state.result = null;
  changed();
}

function edited() {
  state.words = "";
  $("example").value = "";
  changed();
}

function add(at) {
  if (state.points.length >= options.max_points) { say(`No more than ${options.max_points} points.`); return; }
  const point = at.map((v) => Math.round(v * 1000) / 1000);
  if (state.task === "classification") point.push(Number(document.querySelector("[name=label]:checked").value));
  state.points.push(point);
  edited();
}

function nearest(at, reach = 14) {
  const here = toScreen(at);
  const distances = state.points.map((p) => { const q = toScreen(p); return Math.hypot(q[0] - here[0], q[1] - here[1]); });
  const best = distances.indexOf(Math.min(...distances));
  return distances[best] <= reach ? best : -1;
}

function remove(k) {
  if (k < 0) return;
  state.points.splice(k, 1);
  edited();
}

function place(event) {
  const box = $("plot").getBoundingClientRect();
  return toWorld([(600 * (event.clientX - box.left)) / box.width, (400 * (event.clientY - box.top)) / box.height]);
}

function pointing() {
  let grabbed = -1, moved = false;
  const plot = $("plot");
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    grabbed = nearest(place(event)); moved = false;
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    if (grabbed < 0) return;
    const at = place(event);
    if (!moved && nearest(at) === grabbed && Math.hypot(event.movementX, event.movementY) < 2) return;
    moved = true;
    at.forEach((v, k) => { state.points[grabbed][k] = Math.round(Math.max(-3, Math.min(3, v)) * 1000) / 1000; });
    edited();
  });
  plot.addEventListener("pointerup", (event) => {
    if (grabbed < 0 && event.button === 0) add(place(event));
    grabbed = -1;
  });
  plot.addEventListener("dblclick", (event) => remove(nearest(place(event))));
}

function keys() {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  $("plot").addEventListener("keydown", (event) => {
    state.cross ??= [0, 0];
    if (steps[event.key]) {
      const step = event.shiftKey ? 0.5 : 0.1;
      state.cross = state.cross.map((v, k) => v + step * steps[event.key][k]);
      state.cross = [Math.max(-3, Math.min(3, state.cross[0])), Math.max(-2, Math.min(2, state.cross[1]))];
      draw();
    } else if (event.key === "Enter" || event.key === " ") add(state.cross);
    else if (event.key === "Delete" || event.key === "Backspace") remove(nearest(state.cross, 60));
    else if ("123".includes(event.key) && state.task === "classification") document.querySelector(`[name=label][value="${event.key - 1}"]`).checked = true;
    else return;
    event.preventDefault();
  });
  $("plot").addEventListener("blur", () => { state.cross = null; draw(); });
}

function moveBeta() {
  $("beta-value").textContent = beta();
  // the nearest network of the path at once, the exact one a moment later
  if (state.path && solvable()) {
    const here = Math.log(beta()), away = state.path.betas.map((b) => Math.abs(Math.log(b) - here));
    state.shape = state.path.shapes[away.indexOf(Math.min(...away))];
  }
  stop();
  state.runs = state.runShapes = null;
  describeRuns();
  draw();
  fitSoon(60);
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(state.result.model, null, 1)], { type: "application/json" }));
  link.download = "bidual-model.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function start() {
  options = await (await fetch("/api/options")).json();
  setView(options.view);
  for (const radio of document.querySelectorAll("[name=task]")) radio.addEventListener("change", () => setTask(radio.value));
  $("example").addEventListener("change", () => load($("example").value));
  for (const id of ["loss", "architecture", "bias"]) $(id).addEventListener("change", changed);
  $("beta").addEventListener("input", moveBeta);
  $("undo").addEventListener("click", () => remove(state.points.length - 1));
  $("clear").addEventListener("click", () => { state.points = []; edited(); });
  $("download").addEventListener("click", download);
  $("copy").addEventListener("click", () => later("copy", 0, copy));
  $("take").addEventListener("click", () => take($("table").value));
  $("width").addEventListener("change", draw);
  $("descend").addEventListener("click", () => later("descent", 0, descend));
  $("stop").addEventListener("click", stop);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  pointing();
  keys();
  dropping();
  addEventListener("hashchange", recall);
  if (!recall()) setTask("regression");
}

start().catch((error) => say(`The server does not answer: ${error.message}`));
