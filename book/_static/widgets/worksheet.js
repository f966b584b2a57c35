/* Worksheet of the LM head: shapes, FLOPs, bytes and arithmetic intensity of logits = X W, predicted before they are shown.
   Every count is an exact whole number (BigInt); only the written form is rounded, half up. */
(window.labsupport = window.labsupport || { pending: [], register: function () { this.pending.push(arguments); } })
  .register("worksheet", function (root, config) {
    "use strict";
    var lab = window.labsupport, el = lab.el, rules = lab.logic.worksheet;
    var names = { B: "batch B", S: "sequence S", H: "hidden H", V: "vocabulary V" };
    var inputs = {}, answers = {};

    function button(text, action) { return el("button", { type: "button", text: text, onclick: action }); }

    var select = el("select", { onchange: renew }, Object.keys(rules.widths).map(function (name) {
      return el("option", { value: name, text: name + " (" + rules.widths[name] + " B)", selected: name === config.dtype });
    }));
    var fields = Object.keys(names).map(function (name) {
      inputs[name] = el("input", { type: "text", inputmode: "numeric", size: 7, value: config[name], autocomplete: "off", onchange: renew });
      return el("label", { "class": "lab-field" }, [names[name] + " ", inputs[name]]);
    });
    var said = el("p", { "class": "lab-verdict", "aria-live": "polite" });
    var list = el("div", { "class": "lab-questions" });

    function ask(row) {
      var guess = el("input", { type: "text", size: 12, autocomplete: "off", placeholder: row.example,
        onkeydown: function (event) { if (event.key === "Enter") { judge(); } } });
      var answer = el("p", { "class": "lab-answer", "aria-live": "polite" });
      function judge() { answer.textContent = rules.judge(row, guess.value); }
      var reveal = button("reveal", function () { answer.textContent = row.formula + " = " + row.text; });
      answers[row.key] = answer;
      return el("div", { "class": "lab-question" }, [
        el("label", { "class": "lab-field" }, [row.title + " ", guess]), button("check", judge), reveal, answer
      ]);
    }

    function renew() {
      var setting = {};
      var wrong = Object.keys(names).filter(function (name) {
        setting[name] = rules.whole(inputs[name].value);
        return setting[name] === null;
      });
      list.textContent = "";
      if (wrong.length) {
        said.textContent = names[wrong[0]] + " must be a whole number from 1 to 1,000,000,000.";
        return;
      }
      said.textContent = "Predict first: type an answer with its unit, then check it or reveal.";
      rules.rows(setting.B, setting.S, setting.H, setting.V, select.value).forEach(function (row) { list.appendChild(ask(row)); });
    }

    root.classList.add("lab-worksheet");
    [el("div", { "class": "lab-row" }, fields.concat([el("label", { "class": "lab-field" }, ["dtype ", select])])), said, list,
      el("div", { "class": "lab-row" }, [button("reveal all", function () {
        list.querySelectorAll(".lab-question").forEach(function (node) { node.querySelectorAll("button")[1].click(); });
      })])].forEach(function (node) { root.appendChild(node); });
    renew();
  }, (function () {
    "use strict";
    var widths = { FP32: 4, BF16: 2, FP16: 2, FP8: 1 };
    var units = { B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, PB: 1e15, KIB: 1024, MIB: 1048576, GIB: 1073741824,
      TIB: 1099511627776, PIB: 1125899906842624, FLOP: 1, KFLOP: 1e3, MFLOP: 1e6, GFLOP: 1e9, TFLOP: 1e12, PFLOP: 1e15 };

    function whole(text) {
      var plain = text.replace(/[\s,_]/g, "");
      return /^\d{1,10}$/.test(plain) && BigInt(plain) >= 1n && BigInt(plain) <= 1000000000n ? BigInt(plain) : null;
    }

    function grouped(n) { return n.toString().replace(/\B(?=(\d{3})+$)/g, ","); }

    /** numerator / denominator with `digits` decimals, rounded half up, from exact whole numbers. */
    function ratio(numerator, denominator, digits) {
      var scale = 10n ** BigInt(digits);
      var units = (2n * numerator * scale + denominator) / (2n * denominator);
      return grouped(units / scale) + (digits ? "." + (units % scale).toString().padStart(digits, "0") : "");
    }

    function bytes(n) { return grouped(n) + " B = " + ratio(n, 2n ** 30n, 3) + " GiB = " + ratio(n, 10n ** 9n, 3) + " GB"; }

    /** The questions of one setting, with formula, exact value and how it is written. */
    function rows(B, S, H, V, dtype) {
      var b = BigInt(widths[dtype]), flops = 2n * B * S * H * V;
      var weight = H * V * b, activation = B * S * H * b, logits = B * S * V * b, all = weight + activation + logits;
      function size(key, title, formula, value) {
        return { key: key, title: title, formula: formula, value: value, kind: "bytes", text: bytes(value), example: "1.5 GiB" };
      }
      return [
        { key: "shape", title: "shape of the logits", formula: "(B, S, H) @ (H, V)", kind: "shape", value: [B, S, V],
          text: "(" + [B, S, V].join(", ") + ")", example: "(1, 2, 3)" },
        { key: "flops", title: "FLOPs", formula: "2·B·S·H·V", kind: "flops", value: flops,
          text: grouped(flops) + " FLOP = " + ratio(flops, 10n ** 12n, 3) + " TFLOP", example: "1e12" },
        size("weight", "bytes of the weight", "H·V·e", weight),
        size("activation", "bytes of the activation", "B·S·H·e", activation),
        size("logits", "bytes of the logits", "B·S·V·e", logits),
        { key: "intensity", title: "arithmetic intensity", formula: "FLOPs / (weight + activation + logits)", kind: "ratio",
          value: [flops, all], text: ratio(flops, all, 2) + " FLOP/B", example: "100" }
      ];
    }

    function amount(text) {
      var found = /^([\d.,]+(?:e[+-]?\d+)?)\s*([a-z]*)(?:\/b)?$/i.exec(text.trim());
      if (!found) { return NaN; }
      var unit = found[2] === "" ? 1 : units[found[2].toUpperCase()];
      return unit === undefined ? NaN : Number(found[1].replace(/,/g, "")) * unit;
    }

    var slips = [[8, "8 times too large: bits instead of bytes?"], [1 / 8, "8 times too small: bytes taken for bits?"],
      [2, "Twice too large: check the bytes per element, and the 2 of multiply and add."],
      [0.5, "Half: a multiply and an add are 2 FLOPs, and BF16 takes 2 bytes."]];

    /** What to say about a guess, without giving the answer away. */
    function judge(row, guess) {
      if (row.kind === "shape") {
        var sizes = guess.match(/\d+/g) || [];
        if (!sizes.length) { return "A shape is a list of sizes, such as (1, 2, 3)."; }
        return sizes.join() === row.value.join() ? "Right: " + row.text + "."
          : sizes.length === 3 ? "Not this: the inner axis disappears, the others stay in order." : "Not this: the result has three axes.";
      }
      var given = amount(guess);
      if (!(given > 0)) { return "Type a number, with a unit if you like: " + row.example + "."; }
      var truth = row.kind === "ratio" ? Number(row.value[0]) / Number(row.value[1]) : Number(row.value), factor = given / truth;
      if (Math.abs(factor - 1) < 0.005) { return "Right: " + row.text + "."; }
      if (Math.abs(factor - 1) < 0.1) { return "Close, within 10 %. GB and GiB differ by 7 %."; }
      var slip = slips.filter(function (one) { return Math.abs(factor / one[0] - 1) < 0.02; })[0];
      return slip ? slip[1] : factor > 1 ? "Too large. Multiply out " + row.formula + "." : "Too small. Multiply out " + row.formula + ".";
    }

    return { widths: widths, whole: whole, ratio: ratio, rows: rows, judge: judge };
  })());
