/* Float bit explorer: a number in one of six formats, its bits, and its neighbours.
   `logic` rounds a double to the format (to nearest, ties to even) and back, exactly; the page draws it. */
(window.labsupport = window.labsupport || { pending: [], register: function () { this.pending.push(arguments); } })
  .register("bits", function (root, config) {
    "use strict";
    var lab = window.labsupport, el = lab.el, rules = lab.logic.bits;
    var names = Object.keys(rules.formats);
    var name = config.format, typed = config.value, bits = 0;

    function button(text, action) { return el("button", { type: "button", text: text, onclick: action }); }

    var select = el("select", { onchange: function () { name = select.value; take(typed); } },
      names.map(function (one) { return el("option", { value: one, text: one }); }));
    var input = el("input", { type: "text", inputmode: "decimal", autocomplete: "off", size: 14,
      onchange: read, onkeydown: function (event) { if (event.key === "Enter") { read(); } } });
    var row = el("div", { "class": "lab-bits", role: "group", "aria-label": "bits, most significant first" });
    var facts = el("dl", { "class": "lab-facts" });
    var said = el("p", { "class": "lab-verdict", "aria-live": "polite" });

    function read() {
      var text = input.value.trim().toLowerCase().replace("−", "-");
      var value = /^[+-]?inf(inity)?$/.test(text) ? (text[0] === "-" ? -Infinity : Infinity)
        : text === "nan" ? NaN : text === "" ? undefined : Number(text);
      if (value === undefined || (Number.isNaN(value) && text !== "nan")) {
        said.textContent = "Type a number such as 0.1, 1e-5, inf or nan.";
        return;
      }
      take(value);
    }

    function take(value) { typed = value; bits = rules.encode(name, value); draw(); }

    function keep(pattern) { bits = pattern; typed = rules.decode(name, bits); draw(); }

    function step(by) { keep(rules.neighbour(name, bits, by)); }

    function bitButtons() {
      var format = rules.formats[name];
      row.textContent = "";
      [["sign", 1], ["exponent", format.exponent], ["mantissa", format.mantissa]].reduce(function (from, field) {
        var group = el("div", { "class": "lab-field-bits lab-" + field[0] }, [el("span", { "class": "lab-small", text: field[0] })]);
        var line = el("div", { "class": "lab-line" });
        for (var i = 0; i < field[1]; i += 1) { line.appendChild(bitButton(from - i, field[0], field[1] - 1 - i)); }
        group.appendChild(line);
        row.appendChild(group);
        return from - field[1];
      }, rules.width(name) - 1);
    }

    function bitButton(position, field, place) {
      var on = rules.bit(bits, position);
      var node = el("button", {
        type: "button", "class": "lab-bit", "aria-pressed": on ? "true" : "false", text: on ? "1" : "0",
        "aria-label": field + " bit " + place, "data-bit": position,
        onclick: function () {
          keep(rules.flip(bits, position));
          row.querySelector("[data-bit='" + position + "']").focus();
        }
      });
      return node;
    }

    function signed(value) { return Object.is(value, -0) ? "-0" : String(value); }

    function draw() {
      var found = rules.describe(name, bits);
      select.value = name;
      input.value = signed(typed);
      bitButtons();
      facts.textContent = "";
      [["stored value", found.exact], ["pattern", found.hex], ["kind", found.kind], ["as a formula", found.formula],
        ["spacing here (ulp)", found.ulp], ["next below", found.below], ["next above", found.above]].forEach(function (pair) {
        facts.appendChild(el("div", {}, [el("dt", { text: pair[0] }), el("dd", { text: pair[1] })]));
      });
      said.textContent = rules.report(name, typed);
    }

    var presets = el("div", { "class": "lab-row" }, [
      button("next below", function () { step(-1); }), button("next above", function () { step(1); }),
      button("largest", function () { keep(rules.largest(name)); }),
      button("smallest normal", function () { keep(rules.smallestNormal(name)); }),
      button("smallest subnormal", function () { keep(1); }),
      button("0.1", function () { take(0.1); }), button("inf", function () { take(Infinity); }),
      button("nan", function () { take(NaN); })
    ]);
    root.classList.add("lab-float");
    [el("div", { "class": "lab-row" }, [
      el("label", { "class": "lab-field" }, ["format ", select]), el("label", { "class": "lab-field" }, ["number ", input]),
      button("round it", read)
    ]), presets, row, said, facts].forEach(function (node) { root.appendChild(node); });
    take(typed === "inf" ? Infinity : typed === "-inf" ? -Infinity : typed === "nan" ? NaN : typed);
  }, (function () {
    "use strict";
    /* `infinite`: the top exponent holds inf and NaN. E4M3 (fn) keeps it for numbers, with one NaN of each sign. */
    var formats = {
      FP32: { exponent: 8, mantissa: 23, infinite: true }, TF32: { exponent: 8, mantissa: 10, infinite: true },
      FP16: { exponent: 5, mantissa: 10, infinite: true }, BF16: { exponent: 8, mantissa: 7, infinite: true },
      E4M3: { exponent: 4, mantissa: 3, infinite: false }, E5M2: { exponent: 5, mantissa: 2, infinite: true }
    };

    function width(name) { return 1 + formats[name].exponent + formats[name].mantissa; }
    function bias(name) { return Math.pow(2, formats[name].exponent - 1) - 1; }
    function bit(bits, position) { return Math.floor(bits / Math.pow(2, position)) % 2; }
    function flip(bits, position) { return bits + (bit(bits, position) ? -1 : 1) * Math.pow(2, position); }

    /** Split a pattern (a whole number) into sign, exponent field and mantissa field. */
    function fields(name, bits) {
      var f = formats[name], unit = Math.pow(2, f.mantissa);
      return { sign: bit(bits, f.exponent + f.mantissa), exponent: Math.floor(bits / unit) % Math.pow(2, f.exponent), mantissa: bits % unit };
    }

    function kind(name, bits) {
      var f = formats[name], part = fields(name, bits), top = Math.pow(2, f.exponent) - 1;
      if (part.exponent === top && f.infinite) { return part.mantissa ? "NaN" : "infinity"; }
      if (part.exponent === top && part.mantissa === Math.pow(2, f.mantissa) - 1) { return "NaN"; }
      if (part.exponent === 0) { return part.mantissa ? "subnormal" : "zero"; }
      return "normal";
    }

    /** The exact value of a pattern: every format here fits in a double. */
    function decode(name, bits) {
      var f = formats[name], part = fields(name, bits), what = kind(name, bits), sign = part.sign ? -1 : 1;
      if (what === "NaN") { return NaN; }
      if (what === "infinity") { return sign * Infinity; }
      var lead = part.exponent === 0 ? 0 : Math.pow(2, f.mantissa);
      return sign * (lead + part.mantissa) * Math.pow(2, Math.max(part.exponent, 1) - bias(name) - f.mantissa);
    }

    /** floor(log2 |x|) of a finite double other than 0, read from its own bits. */
    function exponentOf(x) {
      var view = new DataView(new ArrayBuffer(8));
      view.setFloat64(0, x);
      var field = (view.getUint32(0) >>> 20) & 0x7ff;
      return field ? field - 1023 : exponentOf(x * Math.pow(2, 54)) - 54;
    }

    function largest(name) {
      var f = formats[name], unit = Math.pow(2, f.mantissa), top = Math.pow(2, f.exponent) - 1;
      return f.infinite ? top * unit - 1 : top * unit + unit - 2;
    }

    function smallestNormal(name) { return Math.pow(2, formats[name].mantissa); }

    function nan(name) {
      var f = formats[name], unit = Math.pow(2, f.mantissa), top = (Math.pow(2, f.exponent) - 1) * unit;
      return f.infinite ? top + unit / 2 : top + unit - 1;
    }

    /** The units of the last place in |x|, at the exponent that x rounds in: a whole number and a fraction. */
    function scaled(name, x) {
      var f = formats[name];
      var exponent = Math.max(exponentOf(x), 1 - bias(name));
      return { exponent: exponent, units: Math.abs(x) / Math.pow(2, exponent - f.mantissa) };
    }

    /** The pattern nearest to a double, ties to even. Beyond the range: infinity, or NaN where there is none. */
    function encode(name, x) {
      var f = formats[name], unit = Math.pow(2, f.mantissa), sign = x < 0 || Object.is(x, -0) ? Math.pow(2, width(name) - 1) : 0;
      var beyond = f.infinite ? largest(name) + 1 : nan(name);
      if (Number.isNaN(x)) { return nan(name); }
      if (x === 0) { return sign; }
      if (!Number.isFinite(x)) { return sign + beyond; }
      var found = scaled(name, x), low = Math.floor(found.units), rest = found.units - low;
      var whole = rest > 0.5 || (rest === 0.5 && low % 2 === 1) ? low + 1 : low;
      var pattern = (found.exponent + bias(name) - 1) * unit + whole;
      return sign + (pattern > largest(name) ? beyond : pattern);
    }

    /** Every double as a decimal, digit for digit. */
    function exact(x) {
      if (Number.isNaN(x)) { return "NaN"; }
      if (!Number.isFinite(x)) { return x < 0 ? "-inf" : "inf"; }
      if (x === 0) { return Object.is(x, -0) ? "-0" : "0"; }
      var view = new DataView(new ArrayBuffer(8));
      view.setFloat64(0, x);
      var stored = view.getBigUint64(0), field = Number((stored >> 52n) & 0x7ffn);
      var whole = (stored & 0xfffffffffffffn) + (field ? 0x10000000000000n : 0n), power = Math.max(field, 1) - 1075;
      while (whole % 2n === 0n && power < 0) { whole /= 2n; power += 1; }
      var sign = x < 0 ? "-" : "";
      if (power >= 0) { return sign + (whole * (2n ** BigInt(power))).toString(); }
      var digits = (whole * (5n ** BigInt(-power))).toString().padStart(1 - power, "0");
      return sign + digits.slice(0, power) + "." + digits.slice(power);
    }

    /** The exact value where it is short, else the power of two that it is a multiple of. */
    function written(x) {
      var text = exact(x);
      return text.length <= 40 ? text : text.replace(/^(-?)0\.0+/, "").length + " digits, about " + x.toPrecision(9);
    }

    /** The pattern of the next larger (`by` = 1) or smaller (-1) value; the same pattern where there is none. */
    function neighbour(name, bits, by) {
      var half = Math.pow(2, width(name) - 1), negative = bits >= half, size = negative ? bits - half : bits;
      var end = formats[name].infinite ? largest(name) + 1 : largest(name);
      if (kind(name, bits) === "NaN") { return bits; }
      if (size === 0) { return by > 0 ? 1 : half + 1; }
      var next = size + (negative ? -by : by);
      if (next > end) { return bits; }
      return (negative && next > 0 ? half : 0) + next;
    }

    /** The distance between neighbouring values where this one lies (its unit in the last place). */
    function ulp(name, bits) {
      var what = kind(name, bits);
      if (what === "NaN" || what === "infinity") { return NaN; }
      return Math.pow(2, Math.max(fields(name, bits).exponent, 1) - bias(name) - formats[name].mantissa);
    }

    function formula(name, bits) {
      var f = formats[name], part = fields(name, bits), what = kind(name, bits), sign = part.sign ? "−" : "";
      if (what === "NaN" || what === "infinity") { return "the top exponent with mantissa " + part.mantissa; }
      var power = Math.max(part.exponent, 1) - bias(name);
      var fraction = " + " + part.mantissa + "/" + Math.pow(2, f.mantissa) + ") × 2^" + power;
      return sign + (part.exponent === 0 ? "(0" : "(1") + fraction;
    }

    function describe(name, bits) {
      var step = ulp(name, bits), power = Number.isNaN(step) ? 0 : exponentOf(step);
      return {
        exact: written(decode(name, bits)), hex: "0x" + bits.toString(16).toUpperCase().padStart(Math.ceil(width(name) / 4), "0"),
        kind: kind(name, bits), formula: formula(name, bits),
        ulp: Number.isNaN(step) ? "none" : "2^" + power + " = " + (power >= -20 ? exact(step) : step.toPrecision(6)),
        below: beside(name, bits, -1), above: beside(name, bits, 1)
      };
    }

    function beside(name, bits, by) {
      var next = neighbour(name, bits, by);
      return next === bits ? "none" : written(decode(name, next));
    }

    /** One sentence on what rounding did to the number. */
    function report(name, x) {
      var bits = encode(name, x), value = decode(name, bits), what = kind(name, bits);
      if (Number.isNaN(x)) { return "Not a number."; }
      if (!Number.isFinite(x) && what === "NaN") { return name + " has no infinity: it becomes NaN, where many kernels saturate to " + decode(name, largest(name)) + "."; }
      if (!Number.isFinite(x)) { return "Infinity is stored as such."; }
      if (what === "infinity") { return "Overflow: beyond the largest finite value " + decode(name, largest(name)) + ", it becomes infinity."; }
      if (what === "NaN") { return "Overflow: " + name + " has no infinity, so it becomes NaN, where many kernels saturate to " + decode(name, largest(name)) + "."; }
      if (Object.is(x, value)) { return "Exact: no rounding."; }
      if (value === 0) { return "Underflow: too small for the smallest subnormal, it becomes zero."; }
      var found = scaled(name, x), tie = found.units - Math.floor(found.units) === 0.5;
      return "Rounded by " + Math.abs(value - x).toExponential(3) + ", " + (Math.abs(value - x) / ulp(name, bits)).toFixed(3) + " ulp" +
        (tie ? ": a tie, which goes to the even mantissa." : ".") + (what === "subnormal" ? " Subnormal: fewer mantissa bits are left." : "");
    }

    return { formats: formats, width: width, bit: bit, flip: flip, fields: fields, kind: kind, decode: decode, encode: encode,
      exact: exact, neighbour: neighbour, ulp: ulp, largest: largest, smallestNormal: smallestNormal, describe: describe, report: report };
  })());
