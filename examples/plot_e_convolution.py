"""
Images: filters trained to a gap
================================

A convolutional layer is a two-layer network on all patches of all images, so that it is trained and certified in the
same way. Its neurons are filters.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from bidual import Convolutional, ReLUClassifier

images, labels = load_digits(n_class=2, return_X_y=True)
images = images.reshape(-1, 8, 8) / 16

est = ReLUClassifier(
    beta=0.004, architecture=Convolutional((5, 5), stride=3), bias=False, tol=0.02, prove=False, random_state=0
).fit(images[:200], labels[:200])
print(est.certificate_)
print(f"right on {est.score(images[200:], labels[200:]):.1%} of {len(images) - 200} other images")

# %%
# The strongest filters, and the class they speak for.
filters = est.network_.filters.reshape(-1, 5, 5)
order = (-abs(est.network_.output_weights[:, 0])).argsort()[:5]
_, grid = plt.subplots(1, len(order), figsize=(2 * len(order), 2.3), layout="constrained", squeeze=False)
largest = abs(filters).max()
for axes, j in zip(grid.flat, order, strict=True):
    axes.imshow(filters[j], cmap="RdBu", vmin=-largest, vmax=largest)
    axes.set(xticks=[], yticks=[], title=f"for a {est.classes_[int(est.network_.output_weights[j, 0] > 0)]}")
plt.show()
