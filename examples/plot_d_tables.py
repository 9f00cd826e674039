"""
A table with text, gaps and dollars
===================================

From a DataFrame to a fitted and certified model in one line: categories are encoded, missing values filled in,
columns and target standardised, and all of it is repeated at prediction.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bidual

# %%
# Houses, as a spreadsheet has them.
rng = np.random.default_rng(0)
n = 80
area, town = rng.uniform(40, 200, n), rng.choice(["Aachen", "Bonn", "Celle"], n)
price = 1500 * area + 900 * np.maximum(area - 120, 0) + 60_000 * (town == "Bonn") + rng.normal(0, 12_000, n)
houses = pd.DataFrame({"area": area, "town": town, "price": [f"${value:,.0f}" for value in price]})
houses.loc[::9, "area"] = np.nan
print(houses.head())

# %%
model = bidual.table_model(houses, "price", beta=0.02, prove=5)
print(model.certificate_)

# %%
# Predictions are in dollars.
grid = pd.DataFrame({"area": np.linspace(40, 200, 100)})
_, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, colour in (("Aachen", "C0"), ("Bonn", "C1"), ("Celle", "C2")):
    axes.plot(grid["area"], model.predict(grid.assign(town=name)), color=colour, label=name)
    axes.plot(area[town == name], price[town == name], ".", color=colour, alpha=0.5)
axes.set(xlabel="area", ylabel="price, $")
axes.legend()
plt.show()
