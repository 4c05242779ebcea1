"""Kernels that a simulated device runs in several tests."""

from __future__ import annotations

import numpy as np

TOUCH = """
extern "C" __global__ void touch(float* cells, int reads, int writes) {
    float sum = 0;
    for (int k = 0; k < 4; ++k) if (reads >> k & 1) sum += cells[k];
    for (int k = 0; k < 4; ++k) if (writes >> k & 1) cells[k] = sum;
}
extern "C" __global__ void scale(const float* x, float* y, int n, int step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i * step] = 2 * x[i * step];
}
"""


def mask(numbers: frozenset[int]) -> np.int32:
    return np.int32(sum(1 << k for k in numbers))
