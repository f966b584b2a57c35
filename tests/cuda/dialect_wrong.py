"""Wrong kernels of many kinds: a race or a barrier in a less usual place, and what numba's compiler refuses."""

import math

import numpy as np
from numpy import float32, int32

from labsupport.cuda.simt import cuda

FULL = 0xFFFFFFFF
T = 8

# -- races ----------------------------------------------------------------------------------


def neighbours_in_place(x):
    i = cuda.grid(1)
    if 0 < i < x.shape[0]:
        x[i] = x[i] + x[i - 1]


def barrier_does_not_order_blocks(x, out):
    i = cuda.grid(1)
    out[i] = x[i]
    cuda.syncthreads()
    cuda.threadfence()
    x[i] = out[(i + cuda.blockDim.x) % out.shape[0]]


def tiles_overlap_by_one(x, out):
    i = cuda.blockIdx.x * (cuda.blockDim.x - 1) + cuda.threadIdx.x
    out[i] = x[i]


def tree_without_barrier_in_the_loop(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        step //= 2
    if t == 0:
        out[0] = s[0]


def scan_in_one_buffer(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < 64:
        if t >= step:
            s[t] += s[t - step]
        cuda.syncthreads()
        step *= 2
    x[t] = s[t]


def transposes_in_place(A):
    j, i = cuda.grid(2)
    A[i, j], A[j, i] = A[j, i], A[i, j]


def ticket_without_barrier(x, counter):
    s = cuda.shared.array(1, int32)
    if cuda.threadIdx.x == 0:
        s[0] = cuda.atomic.add(counter, 0, 1)
    x[cuda.grid(1)] = s[0]


def parts_that_overlap(x):
    s = cuda.shared.array(0, float32)
    a, b = s[:32], s[31:64]
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[t] = x[t]
    cuda.syncthreads()
    x[t] = a[t]


def two_dynamic_arrays(x):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[31 - t] = x[t]
    cuda.syncthreads()
    x[t] = a[t] + b[t]


def shared_array_of_a_loop_is_one(x):
    t = cuda.threadIdx.x
    for k in range(2):
        s = cuda.shared.array(32, float32)
        s[t] = x[t]
        cuda.syncthreads()
        x[t] = s[31 - t] + float32(k)


def double_buffer_one_barrier_short(x, out):
    a, b = cuda.shared.array(32, float32), cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    a[t] = x[t]
    for _ in range(4):
        b[t] = a[(t + 1) % 32]
        a, b = b, a
        cuda.syncthreads()
    out[t] = a[t]


def plain_read_of_what_others_add_to(x, out):
    cuda.atomic.add(out, 0, x[cuda.grid(1)])
    x[cuda.grid(1)] = out[0]


def warp_sum_beyond_the_warp(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    for step in (32, 16, 8, 4, 2, 1):
        if t < step:
            s[t] += s[t + step]
        cuda.syncwarp()
    x[t] = s[0]


@cuda.jit(device=True)
def reversed_in_shared(value):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = value
    cuda.syncthreads()
    return s[31 - t]


def device_function_uses_its_array_twice(x):
    t = cuda.threadIdx.x
    x[t] = reversed_in_shared(x[t]) + reversed_in_shared(-x[t])


@cuda.jit(device=True)
def put_first(s, value):
    s[0] = value
    return value


def array_without_a_name(x):
    x[cuda.threadIdx.x] = put_first(cuda.shared.array(32, float32), x[cuda.threadIdx.x])


@cuda.jit(device=True)
def put_in_own(value):
    s = cuda.shared.array(32, float32)
    s[0] = value
    return value


def two_arrays_of_one_name(x):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    x[t] = s[t] + put_in_own(x[t])


def arrays_named_in_a_tuple(x):
    sA, sB = cuda.shared.array(32, float32), cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    sA[t] = sB[0] = x[t]


# -- barriers -------------------------------------------------------------------------------


def barrier_in_a_loop_of_uneven_length(x):
    t = cuda.threadIdx.x
    for _ in range(t % 2 + 1):
        cuda.syncthreads()
    x[t] = t


def two_barriers_in_one_line(x):
    t = cuda.threadIdx.x
    cuda.syncthreads() if t < 32 else cuda.syncthreads()  # noqa: RUF034
    x[t] = t


@cuda.jit(device=True)
def meets(value):
    cuda.syncthreads()
    return value


def barrier_by_two_calls(x):
    t = cuda.threadIdx.x
    if t < 32:
        x[t] = meets(x[t])
    else:
        x[t] = meets(-x[t])


@cuda.jit(device=True)
def warp_max(value):
    for k in range(5):
        value = max(value, cuda.shfl_xor_sync(FULL, value, 1 << k))
    return value


def shuffle_by_two_calls(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] = warp_max(x[t])
    else:
        x[t] = warp_max(-x[t])


def break_before_the_barrier(x):
    t = cuda.threadIdx.x
    for k in range(4):
        if x[t] > k:
            break
        cuda.syncthreads()
    x[t] = t


def barrier_and_vote(x):
    if cuda.threadIdx.y == 0:
        cuda.syncthreads()
    else:
        cuda.syncthreads_count(1)
    x[cuda.threadIdx.x] = 1


def syncwarp_of_half_in_a_branch(x):
    t = cuda.threadIdx.x
    if t % 2:
        cuda.syncwarp()
    x[t] = t


def barrier_against_syncwarp(x):
    if cuda.threadIdx.x < 16:
        cuda.syncthreads()
    else:
        cuda.syncwarp()
    x[cuda.threadIdx.x] = 1


def masks_that_differ(x):
    t = cuda.threadIdx.x
    mask = FULL if t < 16 else 0xFFFFFFFE
    x[t] = cuda.shfl_xor_sync(mask, x[t], 1)


def shuffle_out_of_the_mask(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] = cuda.shfl_down_sync(0x0000FFFF, x[t], 1)


# -- memory ---------------------------------------------------------------------------------


def stencil_reads_left_of_the_array(x, out):
    j, i = cuda.grid(2)
    out[i, j] = x[i, j - 1]


def last_block_writes_too_far(x):
    s = cuda.local.array(4, float32)
    for k in range(5):
        s[k] = x[0]


def part_read_beyond_its_end(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    half = s[:32]
    cuda.syncthreads()
    x[t] = half[t]


def halo_not_loaded(x, out):
    s = cuda.shared.array(34, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t + 1] = x[i]
    cuda.syncthreads()
    out[i] = s[t] + s[t + 1] + s[t + 2]


def atomic_on_unwritten_shared(x, out):
    s = cuda.shared.array(1, float32)
    cuda.atomic.add(s, 0, x[cuda.threadIdx.x])
    cuda.syncthreads()
    out[0] = s[0]


def too_much_shared_in_two_arrays(x):
    a = cuda.shared.array((96, 96), float32)
    b = cuda.shared.array((96, 96), float32)
    a[0, 0] = b[0, 0] = x[0]


def spins_on_a_lock(lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass


# -- what the compiler refuses ---------------------------------------------------------------


def walrus(x):
    if (i := cuda.grid(1)) < 3:
        x[i] = 1


def makes_a_list(x):
    values = [x[k] for k in range(3)]
    x[0] = values[0]


def list_as_shape(x):
    s = cuda.shared.array([8, 8], float32)
    s[0, 0] = x[0]


def python_float_as_type(x):
    s = cuda.shared.array(8, float)
    s[0] = x[0]


def size_from_the_block(x):
    n = cuda.blockDim.x
    s = cuda.shared.array(n, float32)
    s[0] = x[0]


def size_from_a_local_product(x):
    n = 2 * T
    s = cuda.shared.array(n, float32)
    s[0] = x[0]


def handles_an_exception(x):
    try:
        x[0] = 1
    except Exception:
        x[0] = 2


def truth_value_as_index(x):
    x[cuda.grid(1) > 0] = 1


def float_as_index(x):
    x[math.floor(x[0])] = 1


def exponential_of_numpy(x):
    x[0] = np.exp(x[0])


def array_of_numpy(x):
    a = np.zeros(3)
    x[0] = a[0]


def cube_root(x):
    x[0] = math.cbrt(x[0])


def axes_of_the_thread_by_number(x):
    x[cuda.threadIdx[0]] = 1


def thread_index_taken_apart(x):
    i, _, _ = cuda.threadIdx
    x[i] = 1


def exchange_of_floats(x):
    cuda.atomic.exch(x, 0, x[1])


def counts_up_a_signed_integer(n):
    cuda.atomic.inc(n, 0, 5)


def shuffles_a_truth_value(x):
    x[0] = cuda.shfl_sync(FULL, x[0] > 0, 0)


def votes_with_a_float(x):
    x[0] = cuda.ballot_sync(FULL, x[0])


def calls_itself(x):
    x[0] = countdown(x[0])


@cuda.jit(device=True)
def countdown(value):
    return value if value < 1 else countdown(value - 1)


def atomic_on_an_element(x):
    cuda.atomic.add(x[0], 0, 1)


def no_such_operation(x):
    cuda.synchronize_everything()
    x[0] = 1


def assigns_a_part(x):
    x[0:2] = x[2:4]


def takes_a_name_away(x):
    value = x[0]
    del value
    x[0] = 1


def function_within_that_calls_itself(x):
    def down(value):
        return value if value < 1 else down(value - 1)

    x[0] = down(x[0])


def stores_a_tuple(x):
    x[0] = (1, 2)


def stores_nothing(x):
    x[0] = None


def index_without_an_axis(x):
    x[cuda.threadIdx] = 1


def axis_that_is_none(x):
    x[cuda.threadIdx.w] = 1


# -- what the compiler takes and the simulator does not, with its reason --------------------


def sums_as_a_whole(x):
    x[0] = x.sum()


def sums_with_python(x):
    x[0] = sum(x)


def part_with_a_step(x):
    a = x[::2]
    a[0] = 1


def reads_which_lanes_are_active(x):
    x[0] = cuda.activemask()


def lane_that_is_no_number(x):
    x[0] = cuda.shfl_down_sync(FULL, x[0], x[0])


def mask_that_is_no_number(x):
    x[0] = cuda.shfl_down_sync(1.0, x[0], 1)


def element_from_the_end(x):
    x[0] = x[-1]


def row_of_a_matrix(A):
    row = A[0]
    row[0] = 1


def part_across_rows(A):
    a = A[:, 0]
    a[0] = 1


def part_from_the_end(x):
    a = x[-4:]
    a[0] = 1


# -- what is refused at the launch -----------------------------------------------------------


def returns_a_value(x):
    return x[0]


# -- what Python finds, told in the words of the dialect -------------------------------------


def scalar_with_an_index(x, n):
    x[0] = n[0]


def barrier_with_an_argument(x):
    cuda.syncthreads(1)


def atomic_without_a_value(x):
    cuda.atomic.add(x, 0)


def shared_array_without_a_type(x):
    s = cuda.shared.array(8)
    s[0] = x[0]


def function_without_an_argument(x):
    x[0] = math.exp()


def claims(x):
    assert x[0] > 5
