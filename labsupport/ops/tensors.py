"""Shape and stride arithmetic: where element (i, j, …) lives, which reshapes are views, which shapes combine.

Everything here works on tuples of integers and never touches data, so it says what a tensor library will
do before the library does it. Strides are counted in *elements*, not bytes, as in torch; NumPy's
``ndarray.strides`` divided by ``itemsize`` gives the same numbers.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

Shape = tuple[int, ...]
Strides = tuple[int, ...]


def _sizes(shape: Sequence[int], name: str = "shape") -> Shape:
    """Return the shape as a tuple of ints; refuse a negative size."""
    sizes = tuple(int(n) for n in shape)
    for axis, size in enumerate(sizes):
        if size < 0:
            raise ValueError(f"{name} {sizes}: axis {axis} has size {size}; a size cannot be negative")
    return sizes


def _same_length(shape: Shape, strides: Sequence[int]) -> Strides:
    steps = tuple(int(s) for s in strides)
    if len(steps) != len(shape):
        raise ValueError(
            f"shape {shape} has {len(shape)} axes but strides {steps} has {len(steps)}: one stride per axis"
        )
    return steps


def strides(shape: Sequence[int], order: str = "C") -> Strides:
    """Strides, in elements, of a freshly allocated contiguous tensor.

    ``order="C"`` is row-major: the last axis moves fastest and has stride 1.
    ``order="F"`` is column-major: the first axis has stride 1.
    A tensor with no elements gets stride 0 on every axis, as in NumPy.

    Raises ValueError for a negative size or another order. Source: section 2.2.
    """
    sizes = _sizes(shape)
    if order not in ("C", "F"):
        raise ValueError(f"order must be 'C' (row-major) or 'F' (column-major), got {order!r}")
    if 0 in sizes:
        return (0,) * len(sizes)
    if order == "C":
        return tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
    return tuple(prod(sizes[:axis]) for axis in range(len(sizes)))


def offset(index: Sequence[int], strides: Sequence[int]) -> int:
    """Position in the buffer, in elements from the tensor's first element: sum of index[a] * strides[a].

    Raises ValueError when index and strides have different lengths. Source: section 2.2.
    """
    if len(index) != len(strides):
        raise ValueError(
            f"index {tuple(index)} has {len(index)} axes but strides {tuple(strides)} has {len(strides)}"
        )
    return sum(int(i) * int(s) for i, s in zip(index, strides, strict=True))


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether reading the tensor in row-major order walks the buffer one element at a time.

    The stride of an axis of size 1 is never used, so it does not count; a tensor without elements is
    contiguous. Same answer as NumPy's ``flags.c_contiguous``. Source: section 2.2.
    """
    sizes = _sizes(shape)
    steps = _same_length(sizes, strides)
    if 0 in sizes:
        return True
    expected = 1
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def reshape_strides(shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]) -> Strides | None:
    """Strides with which the same buffer shows ``new_shape``, or None when only a copy can.

    Old and new axes are matched in groups with equal numbers of elements. Inside one group the old axes must
    follow each other without a gap (the stride of an axis equals size times stride of the next one); then
    the group is one run through memory and may be cut anew.

    Raises ValueError when the numbers of elements differ. Source: section 2.2; the rule is that of NumPy's
    ``_attempt_nocopy_reshape``.
    """
    old, new = _sizes(shape), _sizes(new_shape, "new shape")
    steps = _same_length(old, strides)
    if prod(old) != prod(new):
        raise ValueError(
            f"cannot reshape {old} into {new}: {prod(old)} elements cannot become {prod(new)} elements"
        )
    if prod(old) == 0:
        return (0,) * len(new)
    kept = [(size, step) for size, step in zip(old, steps, strict=True) if size != 1]
    result: list[int] = []
    first = 0  # first old axis of the current group
    last_step = 1
    remaining = list(new)
    while first < len(kept):
        stop, old_count = first + 1, kept[first][0]
        count, group = remaining[0], [remaining.pop(0)]
        while old_count != count:
            if old_count < count:
                old_count *= kept[stop][0]
                stop += 1
            else:
                group.append(remaining.pop(0))
                count *= group[-1]
        for (_, outer), (size, inner) in zip(kept[first : stop - 1], kept[first + 1 : stop], strict=True):
            if outer != size * inner:
                return None
        last_step = kept[stop - 1][1]
        result += [last_step * prod(group[axis + 1 :]) for axis in range(len(group))]
        first = stop
    return tuple(result) + (last_step,) * len(remaining)  # what remains are axes of size 1


def can_view(shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]) -> bool:
    """Whether a reshape to ``new_shape`` is a view of the same buffer (True) or needs a copy (False).

    Raises ValueError when the numbers of elements differ. Source: section 2.2.
    """
    return reshape_strides(shape, strides, new_shape) is not None


def _named(position: int) -> str:
    """Name an operand: a, b, c, … and then operand 27."""
    return "abcdefghijklmnopqrstuvwxyz"[position] if position < 26 else f"operand {position + 1}"


def broadcast_shape(*shapes: Sequence[int]) -> Shape:
    """Shape of an elementwise result: shapes are aligned at the last axis; sizes must be equal or 1.

    A missing leading axis counts as size 1; no shape at all gives ().
    Raises ValueError naming the axis (from the end), both operands and both sizes. Source: section 2.3.
    """
    all_sizes = [_sizes(shape) for shape in shapes]
    result: list[int] = []
    for back in range(1, max(map(len, all_sizes), default=0) + 1):
        chosen, owner = 1, 0
        for position, sizes in enumerate(all_sizes):
            size = sizes[-back] if back <= len(sizes) else 1
            if size == 1 or size == chosen:
                continue
            if chosen != 1:
                raise ValueError(
                    f"shapes do not broadcast at axis -{back}: {_named(owner)} {all_sizes[owner]} has size "
                    f"{chosen} and {_named(position)} {sizes} has size {size}; sizes must be equal or 1"
                )
            chosen, owner = size, position
        result.insert(0, chosen)
    return tuple(result)


def broadcast_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> Strides:
    """Strides with which a tensor is read as the broadcast shape ``target``: 0 on every repeated axis.

    Stride 0 means that the index along that axis does not move, so nothing is copied.
    Raises ValueError when ``shape`` does not broadcast to ``target``. Source: section 2.3.
    """
    sizes, goal = _sizes(shape), _sizes(target, "target")
    steps = _same_length(sizes, strides)
    if broadcast_shape(sizes, goal) != goal:
        raise ValueError(f"shape {sizes} does not broadcast to {goal}: the result would be larger than that")
    missing = len(goal) - len(sizes)
    repeated = [
        0 if size == 1 and wanted != 1 else step
        for size, step, wanted in zip(sizes, steps, goal[missing:], strict=True)
    ]
    return (0,) * missing + tuple(repeated)


def matmul_shape(a: Sequence[int], b: Sequence[int]) -> Shape:
    """Shape of ``A @ B``: (…, M, K) @ (…, K, N) → (…, M, N); the leading axes broadcast.

    A one-axis A is read as one row and a one-axis B as one column; that axis then leaves the result, as in
    ``np.matmul``. Raises ValueError naming the axis and both sizes; a scalar is refused.
    Source: sections 2.6 and 2.7.
    """
    left, right = _sizes(a, "a"), _sizes(b, "b")
    for name, sizes in (("a", left), ("b", right)):
        if not sizes:
            raise ValueError(
                f"{name} is a scalar with shape (): matmul needs an axis to reduce; use * instead"
            )
    inner_axis = -1 if len(right) == 1 else -2
    if left[-1] != right[inner_axis]:
        raise ValueError(
            f"inner sizes differ: axis -1 of a {left} has size {left[-1]}, axis {inner_axis} of b {right} "
            f"has size {right[inner_axis]}; matmul reduces over both, so they must be equal"
        )
    batch = broadcast_shape(left[:-2], right[:-2])
    return batch + left[-2:-1] + (right[-1:] if len(right) > 1 else ())


def offsets(shape: Sequence[int], strides: Sequence[int]) -> Iterator[int]:
    """Buffer positions, in elements, in the order in which a row-major scan of the tensor reads them."""
    sizes = _sizes(shape)
    steps = _same_length(sizes, strides)
    for index in product(*(range(n) for n in sizes)):
        yield offset(index, steps)


def line_loads(
    shape: Sequence[int],
    strides: Sequence[int],
    itemsize: int = 4,
    line_bytes: int = 64,
    cache_lines: int = 512,
) -> int:
    """Cache lines fetched from memory while a row-major scan reads every element once.

    A counted model, not a measurement: one fully associative cache of ``cache_lines`` lines of ``line_bytes``
    bytes which drops the line unused for longest; the buffer starts at a line boundary. ``itemsize`` is in
    bytes. Source: section 2.2.
    """
    held: OrderedDict[int, None] = OrderedDict()
    loads = 0
    for position in offsets(shape, strides):
        line = position * itemsize // line_bytes
        if line in held:
            held.move_to_end(line)
            continue
        loads += 1
        held[line] = None
        if len(held) > cache_lines:
            held.popitem(last=False)
    return loads
