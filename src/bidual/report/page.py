"""The page, section by section. Whatever comes from data or files is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from bidual._util.typing import FloatArray
from bidual.bounds import Certificate
from bidual.models import Model
from bidual.report import figures
from bidual.report.comparison import Comparison, Entry, compare
from bidual.solvers import HistoryEntry
from bidual.tables import TableEncoder

#: Nothing is loaded from anywhere, and nothing runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_BIASES = (
    "scikit-learn leaves hidden biases out of its weight decay, so that what it minimises is not quite our objective. "
    "Its networks are judged here by ours, which counts them, after balancing their layers, which costs nothing."
)
_OTHER_LOSS = (
    "The objectives are not set beside each other: scikit-learn's MLP does not know this loss or architecture."
)
_WORSE = (
    "On the new rows a network of scikit-learn scores higher: a lower training objective is no promise there. Try "
    "another beta, or <code>bidual cv</code>."
)
#: Rows and columns of a table that people still read.
_MANY_NEURONS, _MANY_FEATURES = 40, 12


def page(
    model: Model,
    X: FloatArray,
    y: Any,
    *,
    encoder: TableEncoder | None,
    source: str | None,
    model_file: str | None,
    history: Sequence[HistoryEntry] | None,
    tol: float | None,
    compare_with_mlp: bool,
    random_state: int,
) -> str:
    """The whole document, of a model on numbers; ``encoder`` made these of the table."""
    X = np.asarray(X, dtype=np.float64).reshape(len(X), -1)  # samples of a shape as columns too
    y = np.asarray(y, dtype=np.float64 if model.target.classes is None else object).ravel()
    comparison = compare(model, X, y, random_state=random_state) if compare_with_mlp else None
    title = f"{model.target.name}, by a ReLU network"
    sections = [
        _head(model, title, source, tol),
        _data(model, X, y),
        _encoding(encoder),
        _fit(model, X, y),
        _proof(model.certificate, tol),
        _training(history, tol),
        _weights(model),
        _comparison(model, comparison, asked=compare_with_mlp),
        _loading(model, model_file, encoder),
    ]
    style = files("bidual.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, sections))
        + f"\n<footer>Written by bidual {escape(model.training.version)}.</footer>\n</main>\n</body>\n</html>\n"
    )


# ---- sections ----------------------------------------------------------------------------------


def _head(model: Model, title: str, source: str | None, tol: float | None) -> str:
    certificate, training = model.certificate, model.training
    close = tol is None or certificate.gap <= tol
    badge = f'<span class="badge{"" if close else " open"}">proven within {100 * certificate.gap:.2g} %</span>'
    data = f"trained on {training.n_rows} rows" + (f" of {escape(source)}" if source else "")
    facts = {
        "objective": f"{certificate.objective:.6g}",
        "lower bound, proven": f"{certificate.lower_bound:.6g}",
        "proven gap": f"{certificate.gap:.1e}",
        "likely gap": f"{certificate.likely_gap:.1e}",
        "neurons": str(model.network.n_neurons),
        "time": f"{certificate.elapsed:.2f} s",
    }
    return (
        f"<h1>{escape(title)}</h1>\n<p class='soft'>{model.task}, {data}</p>\n"
        f"<p class='lead'>{_capital(escape(certificate.sentence))}. {badge}</p>\n"
        "<dl class='facts'>" + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in facts.items()) + "</dl>"
    )


def _data(model: Model, X: FloatArray, y: Any) -> str:
    table = _columns(model, X) if model.input_shape is None else _samples(model, X)
    if model.target.classes is None:
        target = figures.histogram(y, model.target.name)
    else:
        counts = Counter(y.tolist())
        shares = [[str(c), str(counts[c]), f"{100 * counts[c] / len(y):.1f} %"] for c in model.target.classes]
        target = _table([model.target.name, "rows", "share"], shares, "classes")
    return f"<h2>The data</h2>\n<div class='pair'><div>{table}</div><div>{target}</div></div>"


def _encoding(encoder: TableEncoder | None) -> str:
    """What became of the columns of the table."""
    if encoder is None or (encoder.plain and not encoder.remarks_):
        return ""
    remarks = "".join(f"<li>{escape(_capital(remark))}</li>" for remark in encoder.remarks_[:_MANY_NEURONS])
    return f"<p>Columns of the table: {escape(encoder.summary)}.</p>" + (f"<ul>{remarks}</ul>" if remarks else "")


_STATISTICS = ("smallest", "mean", "largest", "deviation")


def _statistics(values: FloatArray) -> list[str]:
    spread = float(values.std())
    numbers = (values.min(), values.mean(), values.max(), spread)
    return [f"{v if abs(v) > 1e-12 * spread else 0.0:.4g}" for v in numbers]


def _scaling(model: Model) -> str:
    return "standardised before training" if model.scale is not None else "used as they are"


def _columns(model: Model, X: FloatArray) -> str:
    names = model.feature_names
    rows = [[name, *_statistics(column)] for name, column in zip(names[:_MANY_FEATURES], X.T, strict=False)]
    caption = f"{len(names)} input{'s' if len(names) > 1 else ''}, {_scaling(model)}"
    more = f"<p class='soft'>and {len(names) - _MANY_FEATURES} more columns</p>" if len(names) > _MANY_FEATURES else ""
    return _table(["column", *_STATISTICS], rows, caption) + more


def _samples(model: Model, X: FloatArray) -> str:
    shape = " x ".join(map(str, model.input_shape or ()))
    caption = f"{len(X)} samples of shape {shape}, {_scaling(model)}"
    return _table(["", *_STATISTICS], [["all entries", *_statistics(X)]], caption)


def _fit(model: Model, X: FloatArray, y: Any) -> str:
    score = model.score(X, y)
    name = "R²" if model.target.classes is None else "accuracy"
    words = f"<p>{name} on these training rows: <strong>{score:.4g}</strong>.</p>" if np.isfinite(score) else ""
    drawn = [f"<figure>{svg}<figcaption>{text}</figcaption></figure>" for svg, text in figures.pictures(model, X, y)]
    if model.target.classes is not None:
        classes = [str(c) for c in model.target.classes]
        counts = confusion_matrix([str(v) for v in y], [str(v) for v in model.predict(X)], labels=classes)
        rows = [[name, *map(str, row)] for name, row in zip(classes, counts, strict=True)]
        drawn.append(_table(["observed \\ predicted", *classes], rows, "Training rows by class"))
    return "<h2>The fit</h2>\n" + words + "\n".join(drawn)


def _proof(certificate: Certificate, tol: float | None) -> str:
    what = (
        "the size of the weights, among networks that fit the data exactly"
        if certificate.beta == 0
        else f"the mean {escape(certificate.loss)} loss plus {certificate.beta:g} times half the sum of squared weights"
    )
    of = f", {escape(certificate.restrictions)}" if certificate.restrictions else ""
    sentences = [
        f"Training minimises {what}. This network reaches {certificate.objective:.8g}.",
        f"No network of this kind, of any width{of}, is below {certificate.lower_bound:.8g}. That is proven, with "
        f"rounding accounted for ({escape(certificate.method)}): the proven gap is {certificate.gap:.1e}.",
    ]
    if certificate.tells_more:
        sentences.append(
            f"The search that trained it ({escape(certificate.likely_method)}) believes that none is below "
            f"{certificate.likely_bound:.8g}: the likely gap is {certificate.likely_gap:.1e}. That is no proof; "
            "<code>bidual certify</code> takes more time for one."
        )
    if tol is not None:
        met = "less" if certificate.likely_gap <= tol else "more"
        sentences.append(f"The likely gap is {met} than the {tol:g} asked for.")
    sentences.append("It says how well the network was trained, not how well it predicts new rows: see the comparison.")
    return "<h2>What is certain</h2>\n" + "".join(f"<p>{s}</p>" for s in sentences)


def _training(history: Sequence[HistoryEntry] | None, tol: float | None) -> str:
    if not history or len(history) < 3:
        return ""
    words = "The objective of the network and the lower bound that the search believes in close in on each other."
    return f"<h2>The training</h2>\n<figure>{figures.history(history, tol)}<figcaption>{words}</figcaption></figure>"


def _weights(model: Model) -> str:
    network, names = model.network, list(model.feature_names)
    hidden, out = getattr(network, "hidden_weights", None), getattr(network, "output_weights", None)
    intro = f"<h2>The weights</h2>\n<p>{escape(repr(network))}.</p>"
    if hidden is None or out is None or network.n_neurons == 0:
        return intro + ("<p>The best network has no neurons: a constant.</p>" if network.n_neurons == 0 else "")
    gates = network.gate_vectors()
    costs = np.linalg.norm(gates, axis=1) * np.linalg.norm(out, axis=1)
    order = np.argsort(-costs, kind="stable")
    shown = names[:_MANY_FEATURES]
    outputs = (
        ["output"]
        if network.n_outputs == 1
        else [f"output {c}" for c in model.target.classes or range(network.n_outputs)]
    )
    rows = [
        [
            str(k),
            *(f"{v:.4g}" for v in gates[j, : len(shown)]),
            *(["…"] if len(names) > len(shown) else []),
            f"{gates[j, -1]:.4g}",
            *(f"{v:.4g}" for v in out[j]),
            f"{100 * costs[j] / costs.sum():.1f} %",
        ]
        for k, j in enumerate(order[:_MANY_NEURONS], start=1)
    ]
    head = ["neuron", *shown, *(["…"] if len(names) > len(shown) else []), "bias", *outputs, "share of the cost"]
    rest = f"<p class='soft'>and {len(order) - _MANY_NEURONS} smaller ones</p>" if len(order) > _MANY_NEURONS else ""
    intercept = ", ".join(f"{v:.4g}" for v in np.atleast_1d(getattr(network, "intercept", 0.0)))
    units = "on standardised columns" if model.scale is not None else "on the raw columns"
    return intro + _table(head, rows, f"Largest first, {units}; output bias {intercept}") + rest


def _comparison(model: Model, comparison: Comparison | None, asked: bool) -> str:
    if not asked:
        return ""
    if comparison is None:
        return "<h2>Beside scikit-learn's MLP</h2>\n<p>Too few rows for a split into training and test.</p>"
    score = "R² on new rows" if model.target.classes is None else "accuracy on new rows"
    certificate, others = comparison.certificate, comparison.others
    above = (
        f"{100 * (certificate.objective / certificate.lower_bound - 1):.3g} %" if certificate.lower_bound > 0 else "–"
    )
    rows = [_entry(comparison.ours, above), *(_entry(o, _above(o, certificate)) for o in others)]
    known = [o.objective for o in others if o.objective is not None]
    alpha = f"{comparison.n_train * model.training.beta:g}"
    words = [
        f"Both were trained on the same {comparison.n_train} rows and scored on the other {comparison.n_test}, with "
        f"the same weight decay (alpha = {alpha}, which scikit-learn divides by the number of rows)."
    ]
    ended = sum(other.converged for other in others)
    words.append(
        f"scikit-learn's networks have {others[0].n_neurons} neurons, at least as many as ours, and are trained by "
        f"L-BFGS until the gradient vanishes: {ended} of {len(others)} got there."
    )
    if known and certificate.objective <= min(known):
        words.append("None of the other networks has a lower training objective than ours.")
    words.append(_BIASES if known else _OTHER_LOSS)
    if comparison.ours.score < max(o.score for o in others):
        words.append(_WORSE)
    table = _table(["network", "objective", "above the bound by at most", score, "neurons", "time"], rows, ours=True)
    path = ""
    if comparison.path is not None:
        text = "Optimal networks for other values of beta, trained on the same rows: their size, objective and score."
        path = f"<figure>{figures.path(comparison.path)}<figcaption>{text}</figcaption></figure>"
    return "<h2>Beside scikit-learn's MLP</h2>\n" + "".join(f"<p>{w}</p>" for w in words) + table + path


def _above(entry: Entry, certificate: Certificate) -> str:
    if entry.objective is None or certificate.lower_bound <= 0:
        return "–"
    return f"{100 * (entry.objective / certificate.lower_bound - 1):.3g} %"


def _entry(entry: Entry, above: str) -> list[str]:
    objective = "–" if entry.objective is None else f"{entry.objective:.6g}"
    return [entry.name, objective, above, f"{entry.score:.4f}", str(entry.n_neurons), f"{entry.seconds:.2f} s"]


def _loading(model: Model, model_file: str | None, encoder: TableEncoder | None) -> str:
    name = model_file or "model.json"
    target = "values" if model.target.classes is None else "labels"
    inputs = "columns above, in this order" if model.input_shape is None else f"shape (n, {str(model.input_shape)[1:]}"
    if encoder is not None and not encoder.plain:
        inputs = f"columns {', '.join(column.name for column in encoder.columns_)}: a DataFrame, or a dict of columns"
    table = "csv" if model.input_shape is None else "npz"
    python = f"""import bidual

model = bidual.load("{name}")
model.predict(X)          # {target}; X has the {inputs}
print(model.certificate)  # what is certain
model.network.to_torch()  # an ordinary torch module; it takes model.transform(X)"""
    shell = f"bidual predict {name} new.{table} --out predictions.csv\nbidual export {name} --out model.onnx"
    blocks = [f'<pre tabindex="0"><code>{escape(code)}</code></pre>' for code in (python, shell)]
    return "\n".join(["<h2>Using it</h2>", *blocks])


# ---- pieces ------------------------------------------------------------------------------------


def _table(head: Iterable[str], rows: Sequence[Sequence[str]], caption: str = "", ours: bool = False) -> str:
    """Escaped cells; the first row may be marked as ours."""
    top = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr{' class=ours' if ours and k == 0 else ''}>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for k, row in enumerate(rows)
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    label = escape(caption or "table", quote=True)
    return (
        f"<div class='table' tabindex='0' role='region' aria-label='{label}'><table>{title}"
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
