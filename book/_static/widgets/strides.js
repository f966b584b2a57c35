/* Stride explorer: a tensor's cells, the buffer cells they live in, and what each operation does to shape and strides.
   The rules are NumPy's and stand in `logic` as pure functions; the page only draws what they return. */
(window.labsupport = window.labsupport || { pending: [], register: function () { this.pending.push(arguments); } })
  .register("strides", function (root, config) {
    "use strict";
    var lab = window.labsupport, el = lab.el, rules = lab.logic.strides;
    var history = [];
    var picked = [];
    var failed = "";

    function state() { return history[history.length - 1]; }
    function tuple(list) { return "(" + list.join(", ") + (list.length === 1 ? ",)" : ")"); }

    function reset(shape) {
      history = [rules.arange(shape)];
      pickFirst();
    }

    function pickFirst() { picked = state().shape.map(function () { return 0; }); }

    function apply(name, argument) {
      try {
        history.push(rules.apply(state(), name, argument));
        failed = "";
        pickFirst();
      } catch (error) {
        if (!(error instanceof RangeError)) { throw error; }
        failed = error.message;
      }
      draw();
    }

    function numbers(text) {
      var parts = text.replace(/[()\[\]\s]/g, "").split(",").filter(function (part) { return part !== ""; });
      return parts.map(function (part) {
        return /^-?\d+$/.test(part) ? parseInt(part, 10) : NaN;
      });
    }

    function field(label, attributes) {
      var input = el("input", Object.assign({ type: "text", autocomplete: "off" }, attributes));
      return { input: input, node: el("label", { "class": "lab-field" }, [label + " ", input]) };
    }

    function button(text, action) { return el("button", { type: "button", text: text, onclick: action }); }

    var axis = el("select", { "class": "lab-axis" });
    var axisLabel = el("label", { "class": "lab-field" }, ["axis ", axis]);
    var start = field("start", { size: 3, inputmode: "numeric" });
    var stop = field("stop", { size: 3, inputmode: "numeric" });
    var step = field("step", { size: 3, value: "2", inputmode: "numeric" });
    var shape = field("new shape", { size: 8, value: "-1" });
    var bound = function (text) { return text.trim() === "" ? null : Number(text); };

    var controls = el("div", { "class": "lab-ops" }, [
      el("div", { "class": "lab-row" }, [
        axisLabel,
        button("flip", function () { apply("flip", { axis: +axis.value }); }),
        button("new axis before", function () { apply("newaxis", { axis: +axis.value }); })
      ]),
      el("div", { "class": "lab-row" }, [
        start.node, stop.node, step.node,
        button("slice", function () {
          apply("slice", {
            axis: +axis.value, start: bound(start.input.value), stop: bound(stop.input.value),
            step: bound(step.input.value)
          });
        })
      ]),
      el("div", { "class": "lab-row" }, [
        shape.node, button("reshape", function () { apply("reshape", { shape: numbers(shape.input.value) }); }),
        button("broadcast to", function () { apply("broadcast", { shape: numbers(shape.input.value) }); })
      ]),
      el("div", { "class": "lab-row" }, [
        button("transpose", function () { apply("transpose", {}); }),
        button("make contiguous", function () { apply("contiguous", {}); }),
        button("undo", function () { if (history.length > 1) { history.pop(); pickFirst(); } failed = ""; draw(); }),
        button("start again", function () { failed = ""; reset(config.shape); draw(); })
      ])
    ]);
    var code = el("ol", { "class": "lab-code", "aria-label": "operations so far" });
    var facts = el("dl", { "class": "lab-facts" });
    var verdict = el("p", { "class": "lab-verdict", "aria-live": "polite" });
    var tensor = el("div", { "class": "lab-tensor" });
    var formula = el("p", { "class": "lab-formula", "aria-live": "polite" });
    var buffer = el("div", { "class": "lab-buffer" });

    function drawFacts() {
      var now = state();
      facts.textContent = "";
      [["shape", tuple(now.shape)], ["strides, in elements", tuple(now.strides)], ["offset", String(now.offset)],
        ["C-contiguous", rules.isContiguous(now.shape, now.strides) ? "yes" : "no"]].forEach(function (pair) {
        facts.appendChild(el("div", {}, [el("dt", { text: pair[0] }), el("dd", { text: pair[1] })]));
      });
      code.textContent = "";
      history.forEach(function (one) {
        code.appendChild(el("li", {}, [el("code", { text: "x = " + one.code }), " " + (one.verdict === "new" ? "" : one.verdict)]));
      });
      verdict.textContent = failed ? "Not possible: " + failed : now.verdict + ": " + now.why;
      verdict.setAttribute("data-kind", failed ? "error" : now.verdict);
      axis.textContent = "";
      now.shape.forEach(function (size, i) { axis.appendChild(el("option", { value: i, text: i + " (size " + size + ")" })); });
      if (!now.shape.length) { axis.appendChild(el("option", { value: 0, text: "0 (none yet)" })); }
    }

    function cell(index) {
      var now = state(), place = rules.offset(now, index);
      return el("button", {
        type: "button", "class": "lab-cell", tabindex: -1, "data-index": index.join(","),
        "aria-label": "element " + tuple(index) + ", value " + now.buffer[place] + ", buffer cell " + place,
        text: String(now.buffer[place]),
        onclick: function () { pick(index, false); }, onfocus: function () { pick(index, false); },
        onmouseenter: function () { pick(index, false); }, onkeydown: function (event) { walk(event, index); }
      });
    }

    function walk(event, index) {
      var now = state(), last = now.shape.length - 1;
      var move = { ArrowLeft: [last, -1], ArrowRight: [last, 1], ArrowUp: [last - 1, -1], ArrowDown: [last - 1, 1],
        PageUp: [last - 2, -1], PageDown: [last - 2, 1] }[event.key];
      if (!move || move[0] < 0) { return; }
      event.preventDefault();
      var next = index.slice();
      next[move[0]] = Math.min(Math.max(next[move[0]] + move[1], 0), now.shape[move[0]] - 1);
      pick(next, true);
    }

    function matrix(lead) {
      var now = state(), inner = now.shape.slice(lead.length);
      var rows = inner.length === 2 ? inner[0] : 1, columns = inner.length ? inner[inner.length - 1] : 1;
      var box = el("div", { "class": "lab-matrix", style: "grid-template-columns:repeat(" + columns + ",minmax(0,2.4rem))" });
      for (var r = 0; r < rows; r += 1) {
        for (var c = 0; c < columns; c += 1) {
          box.appendChild(cell(lead.concat(inner.length === 2 ? [r, c] : inner.length === 1 ? [c] : [])));
        }
      }
      if (!lead.length) { return box; }
      return el("div", { "class": "lab-plane" }, [el("p", { text: "x[" + lead.join(", ") + "]" }), box]);
    }

    function drawTensor() {
      var now = state();
      tensor.textContent = "";
      rules.indexes(now.shape.slice(0, Math.max(now.shape.length - 2, 0))).forEach(function (lead) {
        tensor.appendChild(matrix(lead));
      });
      buffer.textContent = "";
      var used = {};
      rules.indexes(now.shape).forEach(function (index) { used[rules.offset(now, index)] = true; });
      now.buffer.forEach(function (value, i) {
        buffer.appendChild(el("div", { "class": "lab-store" + (used[i] ? "" : " lab-unused"), "data-cell": i }, [
          el("span", { "class": "lab-small", text: String(i) }), el("span", { text: String(value) })
        ]));
      });
    }

    function pick(index, focus) {
      var now = state(), place = rules.offset(now, index);
      picked = index;
      tensor.querySelectorAll("button").forEach(function (node) {
        var mine = node.getAttribute("data-index") === index.join(",");
        var same = rules.offset(now, numbers(node.getAttribute("data-index"))) === place;
        node.setAttribute("tabindex", mine ? 0 : -1);
        node.classList.toggle("lab-picked", mine);
        node.classList.toggle("lab-same", same && !mine);
        if (mine && focus) { node.focus(); }
      });
      buffer.querySelectorAll("[data-cell]").forEach(function (node) {
        node.classList.toggle("lab-picked", +node.getAttribute("data-cell") === place);
      });
      var terms = index.map(function (i, a) { return i + "·" + (now.strides[a] < 0 ? "(" + now.strides[a] + ")" : now.strides[a]); });
      formula.textContent = "x[" + index.join(", ") + "] is buffer cell " + [now.offset].concat(terms).join(" + ") + " = " + place;
    }

    function draw() { drawFacts(); drawTensor(); pick(picked, false); }

    root.classList.add("lab-strides");
    [controls, code, facts, verdict, el("p", { "class": "lab-head", text: "tensor (arrow keys move)" }), tensor, formula,
      el("p", { "class": "lab-head", text: "buffer in memory (cell number above, value below; dashed: not reached)" }), buffer].forEach(function (node) { root.appendChild(node); });
    reset(config.shape);
    (config.operations || []).forEach(function (operation) {
      history.push(rules.apply(state(), operation.name, operation));
    });
    pickFirst();
    draw();
  }, (function () {
    "use strict";
    var LARGEST = 64;

    function product(list) { return list.reduce(function (a, b) { return a * b; }, 1); }

    /** Row-major strides of a shape, in elements. */
    function rowMajor(shape) {
      var strides = [], run = 1;
      for (var i = shape.length - 1; i >= 0; i -= 1) { strides[i] = run; run *= shape[i]; }
      return strides;
    }

    /** True when walking the tensor row by row walks memory cell by cell; axes of size 1 do not count. */
    function isContiguous(shape, strides) {
      var run = 1;
      for (var i = shape.length - 1; i >= 0; i -= 1) {
        if (shape[i] === 1) { continue; }
        if (strides[i] !== run) { return false; }
        run *= shape[i];
      }
      return true;
    }

    function offset(state, index) {
      return index.reduce(function (sum, i, axis) { return sum + i * state.strides[axis]; }, state.offset);
    }

    function indexes(shape) {
      return shape.reduce(function (lists, size) {
        var out = [];
        lists.forEach(function (list) { for (var i = 0; i < size; i += 1) { out.push(list.concat([i])); } });
        return out;
      }, [[]]);
    }

    function text(list) { return "(" + list.join(", ") + (list.length === 1 ? ",)" : ")"); }

    function arange(shape) {
      var buffer = [];
      for (var i = 0; i < product(shape); i += 1) { buffer.push(i); }
      return {
        shape: shape.slice(), strides: rowMajor(shape), offset: 0, buffer: buffer, verdict: "new",
        why: "a fresh array, stored row by row.",
        code: "np.arange(" + product(shape) + ").reshape(" + shape.join(", ") + ")"
      };
    }

    function view(state, change, code, why) {
      return Object.assign({ offset: state.offset, buffer: state.buffer, verdict: "view", code: code, why: why }, change);
    }

    function copy(state, shape, code, why) {
      var buffer = indexes(state.shape).map(function (index) { return state.buffer[offset(state, index)]; });
      return { shape: shape, strides: rowMajor(shape), offset: 0, buffer: buffer, verdict: "copy", code: code, why: why };
    }

    function needAxis(state, axis, last) {
      if (!(axis >= 0 && axis <= last)) {
        throw new RangeError("axis " + axis + " does not exist in shape " + text(state.shape) + ".");
      }
    }

    function transpose(state) {
      return view(state, { shape: state.shape.slice().reverse(), strides: state.strides.slice().reverse() }, "x.T",
        "the axes, and with them the strides, change their order; no element moves.");
    }

    /** Python's slice.indices: where a slice starts, its step and how many elements it takes. */
    function resolve(size, start, stop, step) {
      step = step === null || step === undefined ? 1 : step;
      if (!Number.isInteger(step) || step === 0) { throw new RangeError("the step of a slice is a whole number other than 0."); }
      [start, stop].forEach(function (bound) {
        if (bound !== null && bound !== undefined && !Number.isInteger(bound)) {
          throw new RangeError("start and stop of a slice are whole numbers or empty.");
        }
      });
      var low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
      function clamp(bound) { return Math.min(Math.max(bound < 0 ? bound + size : bound, low), high); }
      var first = start === null || start === undefined ? (step > 0 ? low : high) : clamp(start);
      var last = stop === null || stop === undefined ? (step > 0 ? high : low) : clamp(stop);
      return { start: first, step: step, length: Math.max(0, Math.ceil((last - first) / step)) };
    }

    function slice(state, argument, why) {
      needAxis(state, argument.axis, state.shape.length - 1);
      var found = resolve(state.shape[argument.axis], argument.start, argument.stop, argument.step);
      if (found.length === 0) { throw new RangeError("this slice takes no element; there would be nothing to see."); }
      var shape = state.shape.slice(), strides = state.strides.slice();
      shape[argument.axis] = found.length;
      strides[argument.axis] *= found.step;
      var part = [argument.start, argument.stop].map(function (b) { return b === null || b === undefined ? "" : b; }).join(":") +
        (found.step === 1 ? "" : ":" + found.step);
      var places = state.shape.slice(0, argument.axis).map(function () { return ":"; }).concat([part]);
      return view(state, { shape: shape, strides: strides, offset: state.offset + found.start * state.strides[argument.axis] },
        "x[" + places.join(", ") + "]", why ||
        "the offset moves by start × stride = " + found.start + " × " + state.strides[argument.axis] +
        ", and the step multiplies the stride by " + found.step + ".");
    }

    function flip(state, argument) {
      return slice(state, { axis: argument.axis, start: null, stop: null, step: -1 },
        "the view begins at the last element and its stride changes sign.");
    }

    function newaxis(state, argument) {
      needAxis(state, argument.axis, state.shape.length);
      var shape = state.shape.slice(), strides = state.strides.slice();
      shape.splice(argument.axis, 0, 1);
      strides.splice(argument.axis, 0, 0);
      var places = state.shape.slice(0, argument.axis).map(function () { return ":"; }).concat(["None"]);
      return view(state, { shape: shape, strides: strides }, "x[" + places.join(", ") + "]",
        "an axis of size 1 needs no stride: its index is always 0.");
    }

    function broadcast(state, argument) {
      var target = argument.shape, lead = target.length - state.shape.length;
      if (!target.length || target.some(function (n) { return !(n >= 1); })) {
        throw new RangeError("a shape is a list of whole numbers of at least 1, such as 2, 3.");
      }
      if (lead < 0) { throw new RangeError("broadcasting cannot drop an axis of shape " + text(state.shape) + "."); }
      if (product(target) > LARGEST) { throw new RangeError("more than " + LARGEST + " elements do not fit on the page."); }
      var strides = target.map(function (size, axis) {
        if (axis < lead) { return 0; }
        var old = state.shape[axis - lead];
        if (old === size) { return size === 1 ? 0 : state.strides[axis - lead]; }
        if (old !== 1) {
          throw new RangeError("axis " + (axis - target.length) + " has size " + old + ", which is neither 1 nor " + size + ".");
        }
        return 0;
      });
      return view(state, { shape: target.slice(), strides: strides }, "np.broadcast_to(x, " + text(target) + ")",
        "stride 0 reads the same cell again and again; nothing is copied.");
    }

    /** NumPy's rule: old axes that merge must follow each other in memory. Returns the new strides, or null. */
    function reshapeStrides(shape, strides, target) {
      var dims = [], steps = [];
      shape.forEach(function (size, i) { if (size !== 1) { dims.push(size); steps.push(strides[i]); } });
      var out = [], oi = 0, oj = 1, ni = 0, nj = 1;
      while (ni < target.length && oi < dims.length) {
        var np = target[ni], op = dims[oi];
        while (np !== op) {
          if (np < op) { np *= target[nj]; nj += 1; } else { op *= dims[oj]; oj += 1; }
        }
        for (var k = oi; k < oj - 1; k += 1) {
          if (steps[k] !== dims[k + 1] * steps[k + 1]) { return null; }
        }
        out[nj - 1] = steps[oj - 1];
        for (var n = nj - 1; n > ni; n -= 1) { out[n - 1] = out[n] * target[n]; }
        ni = nj; nj += 1; oi = oj; oj += 1;
      }
      var last = ni >= 1 ? out[ni - 1] : 1;
      for (; ni < target.length; ni += 1) { out[ni] = last; }
      return out;
    }

    function filled(state, target) {
      var size = product(state.shape);
      var known = target.filter(function (n) { return n !== -1; });
      if (target.some(function (n) { return n !== -1 && !(n >= 1); }) || target.length - known.length > 1) {
        throw new RangeError("a new shape is a list of whole numbers of at least 1, with one -1 at most.");
      }
      var rest = size / product(known);
      var out = target.map(function (n) { return n === -1 ? rest : n; });
      if (product(out) !== size || !Number.isInteger(rest)) {
        throw new RangeError(size + " elements do not fit shape " + text(target) + ".");
      }
      return out;
    }

    function reshape(state, argument) {
      var target = filled(state, argument.shape), code = "x.reshape(" + argument.shape.join(", ") + ")";
      var already = isContiguous(state.shape, state.strides);
      var strides = String(argument.shape) === String(state.shape) ? state.strides.slice()
        : already ? rowMajor(target) : reshapeStrides(state.shape, state.strides, target);
      if (!strides) {
        return copy(state, target, code, "two axes that merge do not follow each other in memory; no single stride walks them.");
      }
      return view(state, { shape: target, strides: strides }, code,
        already ? "the elements already lie row by row, so new strides are enough."
          : "axes that merge or split follow each other in memory, so new strides are enough.");
    }

    function contiguous(state) {
      if (isContiguous(state.shape, state.strides)) {
        return view(state, { shape: state.shape.slice(), strides: state.strides.slice() }, "np.ascontiguousarray(x)", "already contiguous: nothing to do.");
      }
      return copy(state, state.shape.slice(), "np.ascontiguousarray(x)", "the elements are written anew, row by row.");
    }

    var operations = { transpose: transpose, slice: slice, flip: flip, newaxis: newaxis, broadcast: broadcast,
      reshape: reshape, contiguous: contiguous };

    /** Return the state after an operation; RangeError says why it cannot be. */
    function apply(state, name, argument) { return operations[name](state, argument); }

    return { arange: arange, apply: apply, offset: offset, indexes: indexes, isContiguous: isContiguous, rowMajor: rowMajor };
  })());
