/* Broadcasting, axis by axis from the last: two shapes are lined up, and each pair gives a size or a reason why not.
   The rule stands in `logic.broadcast`; the page reveals its steps one at a time. */
(window.labsupport = window.labsupport || { pending: [], register: function () { this.pending.push(arguments); } })
  .register("broadcast", function (root, config) {
    "use strict";
    var lab = window.labsupport, el = lab.el, rules = lab.logic.broadcast;
    var found, shown = 0;

    function button(text, action) { return el("button", { type: "button", text: text, onclick: action }); }
    function field(label, value) {
      var input = el("input", { type: "text", size: 10, autocomplete: "off", value: value, onchange: read });
      return { input: input, node: el("label", { "class": "lab-field" }, [label + " ", input]) };
    }
    var a = field("shape of a", config.a.join(", ")), b = field("shape of b", config.b.join(", "));
    var table = el("div", { "class": "lab-scroll" });
    var said = el("p", { "class": "lab-verdict", "aria-live": "polite" });
    var next = button("next axis", function () { shown = Math.min(shown + 1, found.steps.length); draw(); });
    var back = button("back", function () { shown = Math.max(shown - 1, 0); draw(); });
    var all = button("all axes", function () { shown = found.steps.length; draw(); });

    function read() {
      var shapes = [rules.parse(a.input.value), rules.parse(b.input.value)];
      if (!shapes[0] || !shapes[1]) {
        said.textContent = "A shape is a list of whole numbers of at least 0, such as 8, 1, 3.";
        return;
      }
      found = rules.broadcast(shapes[0], shapes[1]);
      shown = 0;
      draw();
    }

    function line(name, cells) {
      return el("tr", {}, [el("th", { scope: "row", text: name })].concat(cells));
    }

    function draw() {
      var n = found.steps.length, columns = [];
      for (var i = n - 1; i >= 0; i -= 1) { columns.push(found.steps[i]); }
      function cells(key) {
        return columns.map(function (step) {
          var seen = -step.axis <= shown, text = step[key] === null ? "–" : String(step[key]);
          if (key === "out") { text = !seen ? "?" : step.out === null ? "✗" : text; }
          var mark = -step.axis === shown ? "lab-now" : "";
          return el("td", { "class": mark + (key === "out" && seen && step.out === null ? " lab-wrong" : ""), text: text });
        });
      }
      table.textContent = "";
      table.appendChild(el("table", {}, [
        el("thead", {}, [el("tr", {}, [el("th", { scope: "col", text: "axis" })].concat(columns.map(function (step) {
          return el("th", { scope: "col", text: String(step.axis) });
        })))]),
        el("tbody", {}, [line("a", cells("a")), line("b", cells("b")), line("result", cells("out"))])
      ]));
      said.textContent = shown === 0 ? (n ? "Lined up at the last axis. What is the size of the result at axis -1?" : "Two scalars: the result is a scalar, shape ().")
        : found.steps[shown - 1].reason + (shown === n ? " " + found.summary : "");
      next.disabled = all.disabled = shown === n;
      back.disabled = shown === 0;
    }

    root.classList.add("lab-broadcast");
    [el("div", { "class": "lab-row" }, [a.node, b.node, button("line up", read)]), table,
      el("div", { "class": "lab-row" }, [back, next, all]), said].forEach(function (node) { root.appendChild(node); });
    read();
  }, (function () {
    "use strict";
    function text(list) { return "(" + list.join(", ") + (list.length === 1 ? ",)" : ")"); }

    /** "(8, 1, 3)" or "8 1 3" as a list of sizes; null when it is none. */
    function parse(written) {
      var parts = written.replace(/[()\[\]]/g, " ").split(/[\s,]+/).filter(function (part) { return part !== ""; });
      return parts.every(function (part) { return /^\d{1,9}$/.test(part); }) ? parts.map(Number) : null;
    }

    /** One axis: sizes, or null where that shape has no such axis. */
    function pair(axis, a, b) {
      if (a === null || b === null) {
        var only = a === null ? b : a;
        return { axis: axis, a: a, b: b, out: only, reason: "Axis " + axis + ": one shape has ended, so it counts as 1 and the other's " + only + " stands." };
      }
      if (a === b) { return { axis: axis, a: a, b: b, out: a, reason: "Axis " + axis + ": both are " + a + "." }; }
      if (a === 1 || b === 1) {
        return { axis: axis, a: a, b: b, out: a === 1 ? b : a, reason: "Axis " + axis + ": the 1 is stretched to " + (a === 1 ? b : a) + "." };
      }
      return { axis: axis, a: a, b: b, out: null, reason: "Axis " + axis + ": " + a + " and " + b + " differ and neither is 1." };
    }

    /** Steps from the last axis, the result's shape (null when it fails) and the first failing axis. */
    function broadcast(a, b) {
      var n = Math.max(a.length, b.length), steps = [];
      for (var k = 1; k <= n; k += 1) {
        steps.push(pair(-k, k <= a.length ? a[a.length - k] : null, k <= b.length ? b[b.length - k] : null));
      }
      var wrong = steps.filter(function (step) { return step.out === null; })[0];
      var shape = wrong ? null : steps.map(function (step) { return step.out; }).reverse();
      return { steps: steps, shape: shape, fails: wrong ? wrong.axis : null,
        summary: wrong ? "The shapes do not broadcast: axis " + wrong.axis + " fails." : "The result has shape " + text(shape) + "." };
    }

    return { parse: parse, broadcast: broadcast };
  })());
