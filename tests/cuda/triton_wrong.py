"""Wrong neighbours of the Triton kernels, each with one fault; loaded by the interpreter's process only."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, N, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    if FAULT == "no mask":
        x = tl.load(x_ptr + row * stride + column)
    elif FAULT == "zero for the tail":
        x = tl.load(x_ptr + row * stride + column, mask=column < N, other=0.0)
    else:
        x = tl.load(x_ptr + row * stride + column, mask=column < N, other=-float("inf"))
    if FAULT != "no shift":
        x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    y = e / tl.sum(e, axis=0)
    if FAULT == "no mask on the store":
        tl.store(y_ptr + row * N + column, y)
    else:
        tl.store(y_ptr + row * N + column, y, mask=column < N)


def softmax(x, fault):
    y = torch.zeros_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](y, x, x.stride(0), x.shape[1], block, fault)
    return y


@triton.jit
def matmul_kernel(a, b, c, M, N, K, T: tl.constexpr, FAULT: tl.constexpr):
    m = tl.program_id(0) * T + tl.arange(0, T)
    n = tl.program_id(1) * T + tl.arange(0, T)
    acc = tl.zeros((T, T), dtype=tl.float32)
    if FAULT == "bfloat16 accumulator":
        acc = acc.to(tl.bfloat16)
    for start in range(0, K, T):
        k = start + tl.arange(0, T)
        inside = k < K
        if FAULT == "no mask on K":
            inside = k < K + T
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=inside[:, None] & (n[None, :] < N), other=0.0)
        if FAULT == "bfloat16 accumulator":
            acc = acc + tl.dot(x, y).to(tl.bfloat16)
        else:
            acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a, b, fault):
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros((M, N), dtype=a.dtype)
    matmul_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](a, b, c, M, N, K, 16, fault)
    return c


@triton.jit
def norm_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < N
    x = tl.load(x_ptr + row * N + column, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / N
    if FAULT == "mean of squares":
        variance = tl.sum(x * x, axis=0) / N - mean * mean
    elif FAULT == "tail in the variance":
        variance = tl.sum((x - mean) * (x - mean), axis=0) / N
    else:
        d = tl.where(inside, x - mean, 0.0)
        variance = tl.sum(d * d, axis=0) / N
    tl.store(y_ptr + row * N + column, (x - mean) / tl.sqrt(variance + 1e-5), mask=inside)


def layer_norm(x, fault):
    y = torch.zeros_like(x)
    norm_kernel[(x.shape[0],)](y, x, x.shape[1], triton.next_power_of_2(x.shape[1]), fault)
    return y


@triton.jit
def arithmetic_kernel(y_ptr, a_ptr, b_ptr, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + i, mask=i < N, other=1.0)
    b = tl.load(b_ptr + i, mask=i < N, other=1.0)
    tl.store(y_ptr + i, a * b, mask=i < N)
    tl.store(y_ptr + N + i, a + b, mask=i < N)
    tl.store(y_ptr + 2 * N + i, a / b, mask=i < N)
    tl.store(y_ptr + 3 * N + i, tl.abs(a), mask=i < N)


def arithmetic(a, b):
    """a·b, a+b, a/b and |a| in the dtype of the arguments, one after the other."""
    y = torch.zeros(4 * a.numel(), dtype=a.dtype)
    arithmetic_kernel[(1,)](y, a, b, a.numel(), triton.next_power_of_2(a.numel()))
    return y


@triton.jit
def cast_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(y_ptr + i, x.to(y_ptr.dtype.element_ty), mask=i < N)


def cast(x, dtype):
    y = torch.zeros(x.numel(), dtype=getattr(torch, dtype))
    cast_kernel[(1,)](y, x, x.numel(), triton.next_power_of_2(x.numel()))
    return y


@triton.jit
def dot_kernel(c_ptr, a_ptr, b_ptr, T: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, T), tl.arange(0, T), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * T + j[None, :])
    tl.store(c_ptr + i[:, None] * T + j[None, :], tl.dot(a, b))


def dot(a, b):
    """One product of a tile (T, K) with a tile (K, T) in float32, in Triton's default precision."""
    c = torch.zeros((a.shape[0], a.shape[0]))
    dot_kernel[(1,)](c, a, b, a.shape[0], a.shape[1])
    return c


@triton.jit
def count_kernel(h_ptr, x_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < N, other=0)
    tl.atomic_add(h_ptr + x, 1, mask=i < N)


def count(x, bins):
    """Histogram by atomic additions; a value beyond ``bins`` addresses no element."""
    h = torch.zeros(bins, dtype=torch.int32)
    count_kernel[(triton.cdiv(x.numel(), 32),)](h, x, x.numel(), 32)
    return h


@triton.jit
def endless_kernel(x_ptr):
    i = 0
    while i >= 0:
        i = i * 1
    tl.store(x_ptr, i)


def endless(x):
    endless_kernel[(1,)](x)


def crash():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


def speak(x):
    print("a kernel may print")
    return x
