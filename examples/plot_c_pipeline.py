"""
In a pipeline, and out to ONNX and PyTorch
==========================================

The estimators are scikit-learn estimators. What they train is an ordinary network, which leaves as a torch module or
as an ONNX file and computes the same there.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ReLURegressor

X, y = load_diabetes(return_X_y=True)
y = (y - y.mean()) / y.std()
pipe = make_pipeline(StandardScaler(), ReLURegressor(beta=0.05, tol=1e-2, random_state=0))
predicted = cross_val_predict(pipe, X, y, cv=4)

plt.scatter(y, predicted, s=12, color="#2f7ed8", alpha=0.7)
plt.plot([-2, 3], [-2, 3], color="0.6", lw=1)
plt.xlabel("progression of diabetes")
plt.ylabel("predicted, by cross-validation")
plt.show()

# %%
# Out to PyTorch and ONNX.

pipe.fit(X, y)
network, rows = pipe[-1].network_, pipe[:-1].transform(X)
with torch.no_grad():
    print("torch:", np.abs(network.to_torch()(torch.as_tensor(rows)).numpy()[:, 0] - network.predict(rows)).max())
with tempfile.TemporaryDirectory() as folder:
    file = network.to_onnx(Path(folder) / "network.onnx")
    print(f"ONNX: {file.stat().st_size} bytes; load it with onnxruntime.InferenceSession")
