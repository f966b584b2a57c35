"""Calls that a test makes inside the interpreter's process."""

from labsupport.cuda import triton_ops


def with_tile(a, b, kind, number, precision):
    return triton_ops.matmul(a, b, precision=precision, tile=triton_ops.CONFIGS[kind][number])
