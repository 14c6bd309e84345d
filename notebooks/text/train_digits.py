# ---
# jupyter:
#   jupytext:
#     formats: ipynb,text//py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Training on handwritten digits
#
# A convolutional network learns to read 1,797 real handwritten digits. The network is written in TVM's tensor
# expressions, and `tvm_autodiff.differentiate` returns its gradient as tensor expressions. Forward pass, backward
# pass and optimiser are compiled into one function. This notebook imports the functions of
# [tutorials/train_digits.py](../tutorials/train_digits.py).

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": None}
import sys
import time

import numpy as np
from matplotlib.figure import Figure
from tvm import te

import tvm_autodiff as ad

sys.path.insert(0, "../tutorials")
import train_digits as digits_tutorial

# %% [markdown]
# ## The data
#
# The images have 8 by 8 pixels with values from 0 to 1. Four fifths are for training, the rest for testing.

# %%
digits = digits_tutorial.load_data(seed=0)
print("to learn from:", digits.train_images.shape, "to test on:", digits.test_images.shape)

figure = Figure(figsize=(8, 1.2), layout="constrained")
for n, axes in enumerate(figure.subplots(1, 10)):
    axes.imshow(digits.train_images[n, 0], cmap="gray_r")
    axes.set_title(int(digits.train_labels[n]))
    axes.set_axis_off()
figure

# %% [markdown]
# ## The model
#
# `network` stacks two 3x3 convolutions, a maximum over windows of 2x2, and two dense layers. It returns
# tensor expressions, and computes nothing. `ad.show` prints them, one line for each tensor: its axes on the left, the
# expression for one element on the right. Here are the layers after the convolutions.

# %% tags=["exact"]
batch = 32
images = te.placeholder((batch, 1, 8, 8), name="images")
labels = te.placeholder((batch,), "int32", name="labels")
weights = digits_tutorial.placeholders()

scores = digits_tutorial.network(images, weights)
loss = digits_tutorial.cross_entropy(scores, labels)

lines = ad.show(loss).splitlines()
print("\n".join(line for line in lines[-14:]))

# %% [markdown]
# ## The gradient
#
# One call returns the derivative of the loss with respect to every weight. The results are te tensors: you can print
# them, change them, differentiate them again, or compile them.

# %%
gradients = ad.differentiate(loss, weights)

for weight, gradient in zip(weights, gradients, strict=True):
    print(weight.op.name, [int(extent) for extent in gradient.shape])

print("forward:             ", ad.estimate_cost(loss))
print("forward and backward:", ad.estimate_cost([loss, *gradients]))

# %% [markdown]
# Forward and backward pass together do about three times the work of the forward pass. This is as expected: each
# convolution has two gradients, one for its input and one for its weights, and each takes as much work as the convolution.
#
# No sum over zeros is left. Here is the gradient of the second convolution alone. `head` is the cotangent of the
# layer's output, `dx` that of its input, and `dw2` that of the weights:

# %% tags=["exact"]
print(digits_tutorial.gradient_of_one_layer(batch))

# %% [markdown]
# `Σ_{ff<32, ry<3, rx<3}` is a sum over 32 filters and the 3x3 elements of the kernel. The guard `if ... then ... else`
# keeps it inside the image. By definition, `dx` is also a sum over all pixels of all outputs, in which almost all terms
# are zero; [the first notebook](first_gradient.ipynb) shows how the library removes them.
#
# ## One compiled step
#
# `make_step` adds momentum SGD, written in te as well, and compiles everything into one function of arrays.

# %%
begin = time.perf_counter()
step = digits_tutorial.make_step(batch, momentum=0.9)
predict = digits_tutorial.make_predict(len(digits.test_labels))
print(f"compiled in {time.perf_counter() - begin:.1f} s")

# %% [markdown]
# ## Training

# %%
begin = time.perf_counter()
history = digits_tutorial.train(
    step, predict, digits, epochs=15, batch=batch, rate=0.05, seed=0, progress=False
)
seconds = time.perf_counter() - begin
print(f"{len(history.losses)} steps in {seconds:.1f} s")
for epoch in range(0, 15, 2):
    print(f"epoch {epoch + 1:2}: test accuracy {history.test_accuracy[epoch]:.2%}")

# %%
digits_tutorial.picture(history, digits)

# %% tags=["accuracy"]
print(f"test accuracy: {history.test_accuracy[-1]:.2%}")

# %% [markdown]
# ## The gradient with respect to the pixels
#
# Gradients with respect to the images work in the same way. The gradient of a score has one number for each pixel: where it
# is red, more ink raises the score of the predicted digit; where it is blue, more ink lowers it. `head` selects the score.

# %%
count = 10
pixels = te.placeholder((count, 1, 8, 8), name="pixels")
scores = digits_tutorial.network(pixels, weights)
head = te.placeholder(scores.shape, name="head")
[dpixels] = ad.differentiate(scores, [pixels], head)

# the derivative does not read the last bias
look = ad.build([pixels, head, *weights[:-1]], dpixels)

chosen = digits.test_images[:count]
seen = history.probabilities[:count].argmax(axis=1)
evidence = look(chosen, np.eye(10, dtype="float32")[seen], *history.weights[:-1])

figure = Figure(figsize=(8, 2.2), layout="constrained")
upper, lower = figure.subplots(2, count)
for n in range(count):
    upper[n].imshow(chosen[n, 0], cmap="gray_r")
    upper[n].set_title(int(seen[n]))
    limit = abs(evidence[n]).max()
    lower[n].imshow(evidence[n, 0], cmap="RdBu_r", vmin=-limit, vmax=limit)
    upper[n].set_axis_off()
    lower[n].set_axis_off()
figure

# %% [markdown]
# ## The learned filters
#
# The first convolution has sixteen filters of 3 by 3 weights. Red weights are positive, blue ones negative.

# %%
filters = history.weights[0]
limit = abs(filters).max()
figure = Figure(figsize=(8, 1.1), layout="constrained")
for n, axes in enumerate(figure.subplots(1, len(filters))):
    axes.imshow(filters[n, 0], cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_axis_off()
figure
