"""What a learning step is made of, written out in NumPy, and how close torch comes to it."""

from __future__ import annotations

import numpy as np


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def dense(weights, x, prefix):
    """Two Linear layers with ReLU between them."""
    hidden = np.maximum(x @ weights[f"{prefix}.0.weight"].T + weights[f"{prefix}.0.bias"], 0)
    return hidden @ weights[f"{prefix}.2.weight"].T + weights[f"{prefix}.2.bias"]


def slope(function, weights, key, index):
    """Derivative of function(weights) by weights[key][index], by central differences."""
    step, values = 1e-5, []
    for sign in (1, -1):
        moved = {name: value.copy() for name, value in weights.items()}
        moved[key][index] += sign * step
        values.append(function(moved))
    return (values[0] - values[1]) / (2 * step)


def check_gradient(found, function, weights):
    """Of a loss written in NumPy, at two places of every parameter and at the steepest."""
    assert found.keys() == weights.keys()
    for key, gradient in found.items():
        places = {(0,) * gradient.ndim, tuple(n - 1 for n in gradient.shape)}
        places.add(np.unravel_index(np.abs(gradient).argmax(), gradient.shape))
        for index in places:
            np.testing.assert_allclose(
                gradient[index],
                slope(function, weights, key, index),
                rtol=2e-3,
                atol=1e-4,
                err_msg=f"{key}[{index}]",
            )


def part(gradients, name):
    return {key[len(name) + 1 :]: value for key, value in gradients.items() if key.startswith(name)}


def huber(error):
    size = np.abs(error)
    return np.where(size < 1, 0.5 * size**2, size - 0.5)
