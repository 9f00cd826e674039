// Points from elsewhere: pasted or dropped tables, and links that hold a whole problem.

// Cells between tabs or semicolons, where a comma is a decimal one; else between commas; else between spaces.
function cells(line) {
  if (/[\t;]/.test(line)) return line.split(/\s*[\t;]\s*/).map((cell) => cell.replace(/^(-?\d*),(\d+)$/, "$1.$2"));
  return line.includes(",") ? line.split(/\s*,\s*/) : line.split(/\s+/);
}
const round = (v) => Math.round(v * 1000) / 1000;

// The points of a table in the view, with what was done to them; an Error says why there are none. Regression takes the
// last column against the first other one; classification two columns and a label.
export function parse(text, task, view, most) {
  const columns = task === "regression" ? 2 : 3;
  const rows = text.split(/\r?\n/).map((line) => line.trim()).filter(Boolean)
    .map((line) => cells(line).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1")));
  const number = (cell) => (cell === "" ? NaN : Number(cell));
  const inputs = (row) => row.slice(0, columns - 1).map(number);
  const numeric = (row) => [...inputs(row), ...(task === "regression" ? [number(row.at(-1))] : [])];
  if (rows.length > 1 && numeric(rows[0]).some(Number.isNaN)) rows.shift(); // names of columns
  if (!rows.length) throw new Error("The table is empty.");
  rows.forEach((row, k) => {
    if (row.length !== columns) throw new Error(`Row ${k + 1} has ${row.length} columns; ${task} takes ${columns === 2 ? "x, y" : "x1, x2, label"}.`);
    if (!numeric(row).every(Number.isFinite)) throw new Error(`Row ${k + 1} holds something that is no number: ${row.join(", ").slice(0, 60)}`);
  });
  if (rows.length > most) throw new Error(`${rows.length} rows; no more than ${most} fit here (bidual fit takes any number).`);
  const labels = [...new Set(rows.map((row) => row.at(-1)))].sort();
  if (task === "classification" && labels.length > 3) throw new Error(`${labels.length} different labels; up to 3 fit here.`);

  const points = rows.map((row) => [...numeric(row), ...(task === "classification" ? [labels.indexOf(row.at(-1))] : [])]);
  const notes = [`${points.length} points.`];
  [view.x, view.y].forEach(([low, high], k) => {
    const values = points.map((point) => point[k]), least = Math.min(...values), largest = Math.max(...values);
    const fits = least >= low && largest <= high;
    const middle = fits ? 0 : least / 2 + largest / 2, scale = fits ? 1 : (largest / 2 - least / 2) / (0.9 * high) || 1;
    points.forEach((point) => { point[k] = round((point[k] - middle) / scale); });
    if (!fits) notes.push(`${"xy"[k]} is shown as (${"xy"[k]} - ${Number(middle.toPrecision(4))}) / ${Number(scale.toPrecision(4))}.`);
  });
  return { points, words: notes.join(" ") };
}

// What follows the # of a link.
export function link({ task, points, loss, architecture, bias, beta, width }) {
  const rows = points.map((point) => point.join(",")).join(";");
  return `#${new URLSearchParams({ task, loss, architecture, bias: Number(bias), beta, width, points: rows })}`;
}

// The problem of a link, or null if it holds none that can be shown.
export function unlink(hash, options) {
  const held = new URLSearchParams(hash.replace(/^#/, "")), task = held.get("task");
  const losses = Object.hasOwn(options.losses, task) ? options.losses[task] : [];
  const beta = Number(held.get("beta")), width = Number(held.get("width")), columns = task === "regression" ? 2 : 3;
  const points = (held.get("points") || "").split(";").filter(Boolean).map((row) => row.split(",").map(Number));
  const fits = losses.includes(held.get("loss")) && options.architectures.includes(held.get("architecture"))
    && held.has("beta") && Number.isFinite(beta) && points.length > 0 && points.length <= options.max_points
    && points.every((point) => point.length === columns && point.every((v) => Number.isFinite(v) && Math.abs(v) <= 100)
      && (columns === 2 || [0, 1, 2].includes(point[2])));
  if (!fits) return null;
  return { task, points, loss: held.get("loss"), architecture: held.get("architecture"), bias: held.get("bias") !== "0", beta, width };
}
