/* Questions of the book, answered on the page: the judge of choices, numbers with units and shapes, in the browser.
   A classic script, so that a page opened from a disk works. It mirrors labsupport/grading and takes every sentence
   from the data exported there (exercises-data.js); a test compares both. It never asks the network for anything,
   and without it the questions stay readable as text. */
(function () {
  "use strict";
  var data = window.labsupportExercises;
  if (!data) { return; }

  /* ---------- Text as Python sees it ---------- */

  var SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
  var EDGES = new RegExp("^" + SPACE + "+|" + SPACE + "+$", "g");

  function strip(text) { return text.replace(EDGES, ""); }
  function has(object, key) { return Object.prototype.hasOwnProperty.call(object, key); }

  function say(name, values) {
    return data.messages[name].replace(/\{(\w+)\}/g, function (_, key) { return String(values[key]); });
  }

  function escapeHtml(text) {
    var names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
    return text.replace(/[&<>"']/g, function (sign) { return names[sign]; });
  }

  /** Escape a text and turn its `code`, $formula$ and **strong** into HTML; MathJax sets the formulas. */
  function inlineHtml(text) {
    var tokens = /`([^`\n]+)`|\$\$([^$]+)\$\$|\$([^$\n]+)\$|\*\*([^*\n]+)\*\*/g;
    var out = "", end = 0, match;
    while ((match = tokens.exec(text)) !== null) {
      out += escapeHtml(text.slice(end, match.index));
      if (match[1] !== undefined) { out += "<code>" + escapeHtml(match[1]) + "</code>"; }
      else if (match[2] !== undefined) { out += "\\[" + escapeHtml(match[2]) + "\\]"; }
      else if (match[3] !== undefined) { out += "\\(" + escapeHtml(match[3]) + "\\)"; }
      else { out += "<strong>" + inlineHtml(match[4]) + "</strong>"; }
      end = match.index + match[0].length;
    }
    return out + escapeHtml(text.slice(end));
  }

  /* ---------- Exact fractions: [numerator, denominator] of BigInt, denominator > 0 ---------- */

  function fraction(pair) { return [BigInt(pair[0]), BigInt(pair[1])]; }
  function times(a, b) { return [a[0] * b[0], a[1] * b[1]]; }
  function over(a, b) { return b[0] < 0n ? [-a[0] * b[1], a[1] * -b[0]] : [a[0] * b[1], a[1] * b[0]]; }
  function minus(a, b) { return [a[0] * b[1] - b[0] * a[1], a[1] * b[1]]; }
  function size(a) { return a[0] < 0n ? [-a[0], a[1]] : a; }
  function compare(a, b) { var left = a[0] * b[1], right = b[0] * a[1]; return left < right ? -1 : left > right ? 1 : 0; }
  function tenTo(power) { return power < 0 ? [1n, 10n ** BigInt(-power)] : [10n ** BigInt(power), 1n]; }

  /* ---------- Numbers with units ---------- */

  var DECIMAL_NUMBER = "(?:[1-9][0-9]{0,2}(?:[,'\u2019\u202f\u00a0 ][0-9]{3})+(?![0-9])|[0-9]+(?:_[0-9]+)*|(?=\\.[0-9]))" +
    "(?:\\.[0-9]*)?(?:[eE][+\\-\u2212]?[0-9]+)?";
  var WHOLE_POWER = "[+\\-\u2212]?[0-9]+";
  var POWER = "(?:" + SPACE + "*(?:\\^|\\*\\*)" + SPACE + "*(?:" + WHOLE_POWER + "|\\(" + WHOLE_POWER + "\\)|\\{" + WHOLE_POWER + "\\}))?";
  var TIMES = SPACE + "*(?:\\*(?!\\*)|[\u00d7x\u00b7\u22c5/])" + SPACE + "*";
  var NUMBER = new RegExp("^[\u2248~=]?" + SPACE + "*[+\\-\u2212]?" + DECIMAL_NUMBER + POWER + "(?:" + TIMES + DECIMAL_NUMBER + POWER + ")*");
  var FACTOR = "([\u00d7x*\u00b7\u22c5/]?)" + SPACE + "*(" + DECIMAL_NUMBER + ")(" + POWER + ")";
  var RAISED = /[\u207a\u207b]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+/g;
  var SUPERSCRIPTS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
  var COMMA = new RegExp("^," + SPACE + "*[0-9]");
  var MORE = new RegExp("^(?:[+\\-\u2212\u2013\u00b1^]|\\*\\*|\\.\\.)?" + SPACE + "*\\.?[0-9]");
  var LONGEST = 200, LARGEST_EXPONENT = 400, LARGEST_POWER = 5000;

  /** What is wrong with an answer before it has a value. */
  function Finding(text) { this.text = text; }

  /** Split a text into an exact number and the unit after it. */
  function parseNumber(text) {
    text = strip(text);
    if (!text) { throw new Finding(say("number-empty")); }
    if (Array.from(text).length > LONGEST) { throw new Finding(say("number-parse")); }
    text = text.replace(RAISED, function (raised) {
      return "^" + raised.replace(/\u207a/g, "+").replace(/\u207b/g, "-").replace(/[^+-]/g, function (sign) {
        return SUPERSCRIPTS.indexOf(sign);
      });
    });
    var match = NUMBER.exec(text);
    if (!match || !/[0-9]/.test(match[0])) { throw new Finding(say("number-parse")); }
    var value = exactNumber(match[0]), rest = strip(text.slice(match[0].length));
    if (COMMA.test(rest)) { throw new Finding(say("number-comma")); }
    if (MORE.test(rest)) { throw new Finding(say("number-more")); }
    return [value, rest];
  }

  /** The product of the factors: 1.5 * 2**30, 2/3, 2^-24. */
  function exactNumber(text) {
    var plain = text.replace(/\u2212/g, "-").replace(/^[\u2248~= ]+/, "");
    var value = [plain[0] === "-" ? -1n : 1n, 1n], factors = new RegExp(FACTOR, "g"), match;
    plain = plain.replace(/^[+-]+/, "");
    while ((match = factors.exec(plain)) !== null) {
      var factor = raised(decimal(match[2]), match[3]);
      if (match[1] === "/" && factor[0] === 0n) { throw new Finding(say("number-infinite")); }
      value = match[1] === "/" ? over(value, factor) : times(value, factor);
    }
    return value;
  }

  function decimal(text) {
    var plain = text.replace(/[_,'\u2019\u202f\u00a0 ]/g, "").toLowerCase();
    var at = plain.indexOf("e");
    var mantissa = at < 0 ? plain : plain.slice(0, at);
    var exponent = at < 0 ? "" : plain.slice(at + 1);
    if (exponent.length > 5 || Math.abs(parseInt(exponent || "0", 10)) > LARGEST_EXPONENT) {
      throw new Finding(say("number-huge"));
    }
    var parts = mantissa.split(".");
    var digits = BigInt((parts[0] || "") + (parts[1] || "") || "0");
    return reduced(times([digits, 1n], tenTo(parseInt(exponent || "0", 10) - (parts[1] || "").length)));
  }

  function reduced(value) {
    var a = value[0] < 0n ? -value[0] : value[0], b = value[1];
    while (b) { var rest = a % b; a = b; b = rest; }
    return [value[0] / a, value[1] / a];
  }

  /** Raise a number to a whole power, within bounds. */
  function raised(base, power) {
    var digits = power.replace(/[ \t^*(){}]/g, "");
    if (!digits) { return base; }
    var exponent = digits.length <= 6 ? parseInt(digits, 10) : LARGEST_POWER + 1;
    var length = String(base[0]).length + String(base[1]).length - 1;
    if (Math.abs(exponent) * length > LARGEST_POWER) { throw new Finding(say("number-huge")); }
    if (base[0] === 0n && exponent < 0) { throw new Finding(say("number-infinite")); }
    var above = base[0] ** BigInt(Math.abs(exponent)), below = base[1] ** BigInt(Math.abs(exponent));
    return exponent < 0 ? [below, above] : [above, below];
  }

  /** Read a unit such as GiB, TFLOP/s or FLOP/B: its size in base units and its dimension. */
  function parseUnit(text) {
    text = strip(text).split(" per ").join("/");
    if (has(data.plainUnits, text)) { return { size: fraction(data.plainUnits[text]), dimension: [] }; }
    var powers = {}, total = [1n, 1n];
    text.split("/").map(strip).forEach(function (name, place) {
      if (has(data.units, name)) {
        var factor = fraction(data.units[name][0]);
        total = place ? over(total, factor) : times(total, factor);
        data.units[name][1].forEach(function (part) { powers[part[0]] = (powers[part[0]] || 0) + (place ? -1 : 1) * part[1]; });
      } else if (name !== "1" || place) {
        throw new Finding(unknownUnit(text));
      }
    });
    var dimension = Object.keys(powers).sort().filter(function (base) { return powers[base]; })
      .map(function (base) { return [base, powers[base]]; });
    return { size: total, dimension: dimension };
  }

  /** As str.casefold, for the signs that stand in units. */
  function fold(text) { return text.toLowerCase().replace(/\u00b5/g, "\u03bc").replace(/\u017f/g, "s"); }

  function unknownUnit(text) {
    var same = data.unitOrder.filter(function (name) { return fold(name) === fold(text); });
    var close = same.length ? same.slice(0, 2) : closeMatches(text, data.unitOrder, 2, 0.6);
    return say("number-unit-unknown", {
      unit: '"' + Array.from(text).slice(0, 20).join("") + '"',
      close: close.length ? " Did you mean " + close.join(" or ") + "?" : ""
    });
  }

  function describe(dimension) {
    function words(sign) {
      return dimension.filter(function (part) { return sign * part[1] > 0; })
        .map(function (part) { return data.dimensionWords[part[0]]; });
    }
    var above = words(1), below = words(-1);
    if (!above.length && !below.length) { return "no unit"; }
    return [above.join("·") || "one"].concat(below).join(" per ");
  }

  /** The unit of an answer; a number without one may also be followed by the word for what it counts. */
  function unitOf(text, record, number) {
    var unit, named = record.words.indexOf(fold(strip(text))) >= 0;
    try {
      unit = parseUnit(text);
    } catch (error) {
      if (!(error instanceof Finding) || !named) { throw error; }
      return { size: [1n, 1n], dimension: [] };
    }
    var parts = unit.dimension, whole = number[0] % number[1] === 0n;
    var counts = parts.length === 1 && parts[0][1] === 1 && data.counts.indexOf(parts[0][0]) >= 0;
    return counts && whole && named ? { size: [1n, 1n], dimension: [] } : unit;
  }

  function judgeNumber(record, text) {
    var due = fraction(record.value), mine, unit;
    try {
      var parsed = parseNumber(text);
      unit = parsed[1];
      if (!unit) {
        if (record.unit === null && record.dimension.length) {
          throw new Finding(say("number-unit-missing", { example: record.example }));
        }
        unit = record.unit || "";
      }
      unit = unitOf(unit, record, parsed[0]);
      mine = times(parsed[0], unit.size);
    } catch (error) {
      if (!(error instanceof Finding)) { throw error; }
      return failed(record, error.text);
    }
    if (JSON.stringify(unit.dimension) !== JSON.stringify(record.dimension)) {
      return failed(record, say("number-dimension",
        { mine: "your answer", got: describe(unit.dimension), due: describe(record.dimension) }));
    }
    if (isRight(mine, due, record)) { return passed(say("number-right")); }
    var finding = numberFinding(mine, due, record);
    for (var i = 0; i < record.mistakes.length; i++) {
      var mistake = record.mistakes[i];
      if (isRight(mine, fraction(mistake.answer), record)) {
        return failed(record, finding, mistake.message, mistake.name, mistake.section);
      }
    }
    var slip = findSlip(mine, due, record);
    return slip ? failed(record, finding, slip.message, slip.name) : failed(record, finding);
  }

  function isRight(mine, due, record) {
    return record.exact ? compare(mine, due) === 0
      : compare(size(minus(mine, due)), times(fraction(record.rtol), size(due))) <= 0;
  }

  function numberFinding(mine, due, record) {
    if (compare(mine, [-due[0], due[1]]) === 0) { return say("number-sign"); }
    if (due[0] !== 0n && compare(size(minus(mine, due)), over(size(due), [100n, 1n])) <= 0) {
      return record.exact ? say("number-close") : say("number-rounded", { percent: record.percent });
    }
    var larger = compare(size(mine), size(due)) > 0;
    var ratio = due[0] !== 0n ? size(over(mine, due)) : [1n, 1n];
    var far = compare(ratio, [10n, 1n]) > 0 || (mine[0] !== 0n && compare(ratio, [1n, 10n]) < 0);
    return say("number-" + (far ? "far-" : "") + (larger ? "above" : "below"));
  }

  function findSlip(mine, due, record) {
    if (due[0] === 0n) { return null; }
    var ratio = over(mine, due);
    var bases = record.dimension.map(function (part) { return part[0]; });
    var allowed = fraction(data.slipRtol);
    if (!record.exact && compare(fraction(record.rtol), allowed) > 0) { allowed = fraction(record.rtol); }
    for (var i = 0; i < data.slips.length; i++) {
      var slip = data.slips[i];
      var off = size(minus(over(ratio, fraction(slip.ratio)), [1n, 1n]));
      if ((!slip.of || bases.indexOf(slip.of) >= 0) && compare(off, allowed) <= 0) { return slip; }
    }
    return null;
  }

  /* ---------- Spellings alike: difflib.get_close_matches ---------- */

  function closeMatches(word, possibilities, count, cutoff) {
    var b = Array.from(word), found = [];
    possibilities.forEach(function (candidate) {
      var a = Array.from(candidate);
      var ratio = a.length + b.length ? 2 * matching(a, b, 0, a.length, 0, b.length) / (a.length + b.length) : 1;
      if (ratio >= cutoff) { found.push([ratio, candidate]); }
    });
    found.sort(function (x, y) { return y[0] - x[0] || (x[1] < y[1] ? 1 : x[1] > y[1] ? -1 : 0); });
    return found.slice(0, count).map(function (pair) { return pair[1]; });
  }

  /** Number of signs in the matching blocks of a[alo:ahi] and b[blo:bhi]: the longest first, then both sides of it. */
  function matching(a, b, alo, ahi, blo, bhi) {
    var besti = alo, bestj = blo, best = 0, lengths = {};
    for (var i = alo; i < ahi; i++) {
      var next = {};
      for (var j = blo; j < bhi; j++) {
        if (a[i] !== b[j]) { continue; }
        var length = next[j] = (lengths[j - 1] || 0) + 1;
        if (length > best) { besti = i - length + 1; bestj = j - length + 1; best = length; }
      }
      lengths = next;
    }
    if (!best) { return 0; }
    return best + matching(a, b, alo, besti, blo, bestj) + matching(a, b, besti + best, ahi, bestj + best, bhi);
  }

  /* ---------- Shapes ---------- */

  var BRACKETS = new RegExp("^(?:torch\\.Size)?" + SPACE + "*[(\\[]*([^]*?)[)\\]]*$");
  var BETWEEN = new RegExp(SPACE + "*[,;\u00d7x*]" + SPACE + "*|" + SPACE + "+");
  var WHOLE = /^[+-]?[0-9]+(?:_[0-9]+)*$/;
  var DECIMAL = /^[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?$/;

  /** The entries of a typed shape: a BigInt, or the name of the type that stands there instead. */
  function shapeFromText(text) {
    var match = BRACKETS.exec(strip(text));
    var inner = strip(match ? match[1] : text);
    if (inner.slice(-1) === ",") { inner = strip(inner.slice(0, -1)); }
    if (!inner) { return []; }
    return inner.split(BETWEEN).map(function (item) {
      if (WHOLE.test(item)) { return BigInt(item.replace(/_/g, "").replace(/^\+/, "")); }
      return DECIMAL.test(item) ? "a float" : "a string";
    });
  }

  function judgeShape(record, text) {
    var mine = shapeFromText(text);
    for (var axis = 0; axis < mine.length; axis++) {
      if (typeof mine[axis] === "string") { return failed(record, say("shape-entry", { axis: axis, what: mine[axis] })); }
      if (mine[axis] < 0n) { return failed(record, say("shape-negative", { axis: axis })); }
    }
    mine = mine.map(String);
    var due = record.shape.map(String);
    if (mine.join() === due.join()) { return passed(say("shape-right")); }
    for (var i = 0; i < record.mistakes.length; i++) {
      var mistake = record.mistakes[i];
      if (mine.join() === mistake.answer.join()) {
        return failed(record, shapeFinding(mine, due), mistake.message, mistake.name, mistake.section);
      }
    }
    return failed(record, shapeFinding(mine, due));
  }

  function shapeFinding(mine, due) {
    if (mine.length !== due.length) { return say(mine.length < due.length ? "shape-rank-few" : "shape-rank-many"); }
    if (mine.slice().sort().join() === due.slice().sort().join()) { return say("shape-order"); }
    var wrong = [];
    mine.forEach(function (length, axis) { if (length !== due[axis]) { wrong.push(axis); } });
    var last = wrong.pop();
    return say("shape-axes", { axes: wrong.length ? "axes " + wrong.join(", ") + " and " + last : "axis " + last });
  }

  /* ---------- Choices, and exercises of several parts ---------- */

  function judgeChoice(record, keys) {
    var correct = record.options.filter(function (option) { return option.correct; });
    var chosen = record.options.filter(function (option) { return keys.indexOf(option.key) >= 0; });
    if (!chosen.length) { return failed(record, say("choice-none")); }
    var wrong = chosen.filter(function (option) { return !option.correct; })[0];
    if (wrong) { return failed(record, say("choice-wrong", { key: wrong.key }), wrong.explanation, wrong.key); }
    if (chosen.length < correct.length) { return failed(record, say("choice-missing")); }
    return passed([say("choice-right")].concat(correct.map(function (option) { return option.explanation; })).join("\n"));
  }

  function judgeSeveral(record, answers) {
    var open = [];
    for (var i = 0; i < record.parts.length; i++) {
      var name = record.parts[i].name, part = record.parts[i].part, answer = answers[name];
      if (isBlank(part, answer)) { open.push(name); continue; }
      part = Object.assign({ id: record.id }, part);
      var verdict = judgeOne(part, answer);
      if (verdict.state !== "pass") {
        return { state: verdict.state, message: name + ": " + verdict.message,
                 mistake: verdict.mistake ? name + ": " + verdict.mistake : null };
      }
    }
    if (open.length) {
      var done = open.length === record.parts.length ? "" : " What you gave so far is right.";
      return { state: "todo", message: "still to do: " + open.join(", ") + "." + done, mistake: null };
    }
    return passed("right, all " + record.parts.length + " parts.");
  }

  function passed(message) { return { state: "pass", message: message, mistake: null }; }

  function failed(record, finding, detail, mistake, section) {
    var where = "See section " + (section || record.section) + ', then hint("' + record.id + '").';
    var lines = [finding, detail || "", where].filter(Boolean);
    return { state: "fail", message: lines.join("\n"), mistake: mistake || null };
  }

  function judgeOne(record, answer) {
    return { number: judgeNumber, shape: judgeShape, choice: judgeChoice, several: judgeSeveral }[record.kind](record, answer);
  }

  /** Judge what a reader typed (a text), chose (a list of keys), or both by part: {state, message, mistake}. */
  function judge(id, answer) {
    return judgeOne(Object.assign({ id: id }, data.exercises[id].form), answer);
  }

  function isBlank(record, answer) {
    if (answer === undefined || answer === null) { return true; }
    if (record.kind === "choice") { return !answer.length; }
    if (record.kind === "several") {
      return record.parts.every(function (entry) { return isBlank(entry.part, answer[entry.name]); });
    }
    return !strip(answer);
  }

  /* ---------- What the browser remembers: the form of the notebook's progress.json ---------- */

  var KEY = "labsupport-progress";
  var RANK = { todo: 0, fail: 1, review: 2, pass: 3 };
  var memory = {};
  var stored = true;

  function isCount(value) { return Number.isSafeInteger(value) && value >= 0; }

  function isEntry(entry) {
    return entry !== null && typeof entry === "object" && !Array.isArray(entry) &&
      ["attempts", "hints", "solutions"].every(function (key) { return entry[key] === undefined || isCount(entry[key]); }) &&
      ["state", "best"].every(function (key) { return entry[key] === undefined || has(RANK, String(entry[key])); });
  }

  /** The entries of a progress file; null for a text that is none or that a newer edition wrote. */
  function readProgress(text) {
    var found;
    try { found = JSON.parse(text); } catch (error) { return null; }
    if (found === null || typeof found !== "object" || found.version !== 1) { return null; }
    if (found.exercises === null || typeof found.exercises !== "object") { return null; }
    var entries = {};
    Object.keys(found.exercises).forEach(function (id) {
      if (isEntry(found.exercises[id])) { entries[id] = found.exercises[id]; }
    });
    return entries;
  }

  function progressText(entries) {
    var sorted = {};
    Object.keys(entries).sort().forEach(function (id) { sorted[id] = entries[id]; });
    return JSON.stringify({ version: 1, exercises: sorted }, null, 1);
  }

  function load() {
    try {
      var text = localStorage.getItem(KEY);
      stored = true;
      return text === null ? {} : readProgress(text) || {};
    } catch (error) {  // storage is blocked: remember until the page is closed
      stored = false;
      return memory;
    }
  }

  /** Change what is remembered, starting from what another tab may have written meanwhile. */
  function remember(change) {
    var entries = load();
    change(entries);
    memory = entries;
    try { localStorage.setItem(KEY, progressText(entries)); } catch (error) { stored = false; }
    window.dispatchEvent(new CustomEvent("labsupport-progress"));
  }

  function entryOf(id) { var entries = load(); return has(entries, id) ? entries[id] : {}; }

  function record(id, verdict, answer) {
    if (verdict.state !== "pass" && verdict.state !== "fail") { return; }
    var mark = hash(JSON.stringify(answer));
    remember(function (entries) {
      var entry = entries[id] = has(entries, id) ? entries[id] : {};
      if (entry.answer !== mark || !entry.attempts) { entry.attempts = (entry.attempts || 0) + 1; }
      entry.state = verdict.state;
      entry.answer = mark;
      if (RANK[verdict.state] >= RANK[entry.best || "todo"]) { entry.best = verdict.state; }
    });
  }

  /** Take in another progress: the better state, the larger counts. */
  function mergeProgress(found) {
    remember(function (entries) {
      Object.keys(found).forEach(function (id) {
        var mine = entries[id] = has(entries, id) ? entries[id] : {}, theirs = found[id];
        if (RANK[theirs.best || "todo"] > RANK[mine.best || "todo"]) { mine.best = theirs.best; mine.state = theirs.state || theirs.best; }
        ["attempts", "hints", "solutions"].forEach(function (key) {
          if (theirs[key] > (mine[key] || 0)) { mine[key] = theirs[key]; }
        });
      });
    });
  }

  /** A short mark that tells one answer from another (FNV-1a); it hides nothing. */
  function hash(text) {
    var value = 2166136261;
    for (var i = 0; i < text.length; i++) { value = Math.imul(value ^ text.charCodeAt(i), 16777619); }
    return "page-" + (value >>> 0).toString(16);
  }

  /* ---------- The form ---------- */

  var count = 0;

  function el(tag, attributes, children) {
    var node = document.createElement(tag);
    Object.keys(attributes || {}).forEach(function (key) {
      if (key === "text") { node.textContent = attributes[key]; }
      else if (key === "html") { node.innerHTML = attributes[key]; }
      else if (key.slice(0, 2) === "on") { node.addEventListener(key.slice(2), attributes[key]); }
      else { node.setAttribute(key, attributes[key]); }
    });
    (children || []).forEach(function (child) { if (child) { node.appendChild(child); } });
    return node;
  }

  function typeset(node) {
    var jax = window.MathJax;
    if (!jax || !jax.startup || !jax.startup.promise) { return; }  // it will typeset the whole page when it starts
    jax.startup.promise.then(function () { return jax.typesetPromise([node]); });
  }

  var HELP = {
    shape: "A shape, for example (8, 12, 1024).",
    unit: function (record) { return "A number with its unit, for example 1.5 " + record.example + "."; },
    bare: function (record) { return "A number, with a unit or in " + record.unit + "."; },
    plain: "A number. Powers may be written 2e9 or 2×10^9."
  };

  function helpOf(record) {
    if (record.kind === "shape") { return HELP.shape; }
    if (!record.dimension.length) { return HELP.plain; }
    return record.unit === null ? HELP.unit(record) : HELP.bare(record);
  }

  /** The controls of one question: {nodes, read(), clear(), focus()}. */
  function controls(record, label) {
    return record.kind === "choice" ? options(record) : record.kind === "several" ? parts(record) : textField(record, label);
  }

  function options(record) {
    var many = record.options.filter(function (option) { return option.correct; }).length > 1;
    var name = "ls-choice-" + (++count);
    var inputs = [];
    var nodes = record.options.map(function (option) {
      var input = el("input", { type: many ? "checkbox" : "radio", name: name, id: name + "-" + inputs.length, value: option.key });
      inputs.push(input);
      return el("div", { "class": "ls-option" }, [input,
        el("label", { "for": input.id, html: "<b>" + escapeHtml(option.key) + ")</b> " + inlineHtml(option.text) })]);
    });
    if (many) { nodes.unshift(el("p", { "class": "ls-help", text: "Several options are right." })); }
    return {
      nodes: nodes,
      read: function () { return inputs.filter(function (i) { return i.checked; }).map(function (i) { return i.value; }); },
      clear: function () { inputs.forEach(function (input) { input.checked = false; }); },
      focus: function () { inputs[0].focus(); }
    };
  }

  function textField(record, label) {
    var id = "ls-text-" + (++count);
    var input = el("input", { type: "text", id: id, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
                              "aria-describedby": id + "-help" });
    return {
      nodes: [el("p", { "class": "ls-field" }, [el("label", { "for": id, text: label }), input]),
              el("p", { "class": "ls-help", id: id + "-help", text: helpOf(record) })],
      read: function () { return input.value; },
      clear: function () { input.value = ""; },
      focus: function () { input.focus(); }
    };
  }

  function parts(record) {
    var made = record.parts.map(function (entry) {
      var inner = controls(entry.part, "Your answer");
      inner.name = entry.name;
      inner.box = el("fieldset", { "class": "ls-part" }, [
        el("legend", {}, [el("code", { text: entry.name })]),
        entry.part.prompt !== record.prompt ? el("p", { html: inlineHtml(entry.part.prompt) }) : null
      ].concat(inner.nodes));
      return inner;
    });
    return {
      nodes: made.map(function (inner) { return inner.box; }),
      read: function () {
        var answers = {};
        made.forEach(function (inner) { answers[inner.name] = inner.read(); });
        return answers;
      },
      clear: function () { made.forEach(function (inner) { inner.clear(); }); },
      focus: function () { made[0].focus(); }
    };
  }

  /** One line of a verdict; a section on this page becomes a link. */
  function lineHtml(text) {
    return inlineHtml(text).replace(/section (\d+(?:\.\d+)*)/g, function (whole, number) {
      var anchor = "sec-" + number.replace(/\./g, "-");
      return document.getElementById(anchor) ? '<a href="#' + anchor + '">' + whole + "</a>" : whole;
    });
  }

  function verdictNode(id, verdict) {
    var lines = verdict.message.split("\n");
    var head = '<span aria-hidden="true">' + data.symbols[verdict.state] + '</span> <strong class="ls-state">' +
      data.words[verdict.state] + "</strong> · <code>" + escapeHtml(id) + "</code>: " + lineHtml(lines[0]);
    return el("div", { "class": "ls-verdict ls-" + verdict.state, "data-state": verdict.state },
      [el("p", { "class": "ls-head", html: head })].concat(
        lines.slice(1).map(function (line) { return el("p", { html: lineHtml(line) }); })));
  }

  /** The form of a question; `asked` leaves out what the text above it says. */
  function makeForm(id, asked) {
    var question = Object.assign({ id: id }, data.exercises[id].form);
    var field = controls(question, "Your answer");
    var result = el("div", { "class": "ls-result", role: "status", "aria-live": "polite" });
    var hints = el("ol", { "class": "ls-hints", "aria-live": "polite", "aria-label": "Hints" });
    var hintButton = el("button", { type: "button", onclick: openHint });

    function show(node) { result.replaceChildren(node); typeset(node); }

    function submit(event) {
      event.preventDefault();
      var answer = field.read();
      if (isBlank(question, answer)) {
        show(el("p", { text: question.kind === "choice" ? "Choose an option first." : "Type an answer first." }));
        field.focus();
        return;
      }
      var verdict = judgeOne(question, answer);
      record(id, verdict, answer);
      show(verdictNode(id, verdict));
    }

    function openHint() {
      remember(function (entries) {
        var entry = entries[id] = has(entries, id) ? entries[id] : {};
        entry.hints = Math.min((entry.hints || 0) + 1, question.hints.length);
      });
      showHints();
    }

    function showHints() {
      var open = Math.min(entryOf(id).hints || 0, question.hints.length);
      while (hints.children.length > open) { hints.lastChild.remove(); }
      while (hints.children.length < open) {
        var item = el("li", { html: inlineHtml(question.hints[hints.children.length]) });
        hints.appendChild(item);
        typeset(item);
      }
      hints.hidden = open === 0;
      hintButton.textContent = open === question.hints.length ? "No more hints" : "Hint " + (open + 1) + " of " + question.hints.length;
      hintButton.setAttribute("aria-disabled", String(open === question.hints.length));
    }

    function startAgain() {
      remember(function (entries) { delete entries[id]; });
      field.clear();
      showHints();
      show(el("p", { text: "Cleared. This question is open again." }));
      field.focus();
    }

    showHints();
    if (entryOf(id).best === "pass") {
      show(el("p", { text: data.symbols.pass + " You passed this question before." }));
    }
    var form = el("form", { "class": "ls-form mathjax_process tex2jax_process", novalidate: "", onsubmit: submit }, [
      el("fieldset", {}, [
        el("legend", { html: inlineHtml(data.exercises[id].title), "class": asked ? "ls-unseen" : "" }),
        asked ? null : el("p", { html: inlineHtml(question.prompt) }),
        asked || !question.contract ? null : el("p", { html: inlineHtml(question.contract) })
      ].concat(field.nodes)),
      el("p", { "class": "ls-buttons" }, [
        el("button", { type: "submit", "class": "ls-check", text: "Check" }), hintButton,
        el("button", { type: "button", text: "Start again", onclick: startAgain })
      ]),
      result, hints
    ]);
    form.dataset.exercise = id;
    return form;
  }

  /** Whether the text above the form asks the question already: a page of exercises gives each a section of its own. */
  function isAsked(id, place) {
    var section = place.closest("section"), heading = section && section.querySelector("h1, h2, h3, h4");
    if (!heading) { return false; }
    var words = heading.cloneNode(true);
    words.querySelectorAll(".headerlink").forEach(function (link) { link.remove(); });
    return words.textContent.trim() === el("p", { html: inlineHtml(data.exercises[id].title) }).textContent.trim();
  }

  /** What a browser cannot judge says where it is judged, in place of a question that stands above it already. */
  function leadToNotebook(id, verdict) {
    if (!isAsked(id, verdict)) { return; }
    Array.prototype.slice.call(verdict.children, 1).forEach(function (line) { line.remove(); });
    verdict.appendChild(el("p", { html: "Answer it in this page's notebook, which <code>make lab</code> opens." }));
  }

  function answerOnPage() {
    document.querySelectorAll('.ls-verdict[data-state="todo"][data-exercise]').forEach(function (verdict) {
      var id = verdict.dataset.exercise;
      if (!has(data.exercises, id)) { return; }
      if (!data.exercises[id].form) { leadToNotebook(id, verdict); return; }
      var form = makeForm(id, isAsked(id, verdict));
      verdict.replaceWith(form);
      var cell = form.closest(".cell");
      if (cell) { cell.classList.add("ls-answered-here"); }
      typeset(form);
    });
  }

  /* ---------- The self-check page ---------- */

  function isDone(state) { return state === "pass" || state === "review"; }
  function bestOf(entries, id) { return has(entries, id) ? entries[id].best || "todo" : "todo"; }
  var STATE_WORDS = { pass: "passed", review: "handed in", fail: "tried", todo: "open" };

  function exerciseList(ids, entries) {
    return el("ul", {}, ids.map(function (id) {
      var exercise = data.exercises[id];
      var where = exercise.form ? "" : ", in the notebook";
      return el("li", { html: inlineHtml(exercise.title) + ": <strong>" + STATE_WORDS[bestOf(entries, id)] + "</strong>" + where });
    }));
  }

  function showItems(list, entries) {
    Array.from(list.children).forEach(function (item, index) {
      var ids = data.order.filter(function (id) { return data.exercises[id].checklist.indexOf(index + 1) >= 0; });
      var done = ids.filter(function (id) { return isDone(bestOf(entries, id)); }).length;
      var ticked = ids.length > 0 && done === ids.length;
      var old = item.querySelector(".ls-item");
      var wasOpen = old && old.open;
      if (old) { old.remove(); }
      item.classList.toggle("ls-ticked", ticked);
      var summary = el("summary", { html: "<strong>" + (ticked ? "✓ Ticked" : "○ Open") + "</strong>: " +
        (ids.length ? done + " of " + ids.length + " exercises done" : "no exercise yet") });
      var details = el("details", { "class": "ls-item" }, [summary, exerciseList(ids, entries)]);
      if (wasOpen) { details.open = true; }
      item.appendChild(details);
    });
  }

  function chapterTable(entries) {
    var chapters = {}, done = 0, points = 0, all = 0;
    data.order.forEach(function (id) {
      var exercise = data.exercises[id];
      (chapters[exercise.chapter] = chapters[exercise.chapter] || []).push(id);
      all += exercise.points;
      if (isDone(bestOf(entries, id))) { done += 1; points += exercise.points; }
    });
    var rows = Object.keys(chapters).map(Number).sort(function (a, b) { return a - b; }).map(function (number) {
      var ids = chapters[number];
      var passed = ids.filter(function (id) { return isDone(bestOf(entries, id)); }).length;
      var bar = el("span", { "class": "ls-bar", "aria-hidden": "true" }, [el("span", {})]);
      bar.firstChild.style.width = 100 * passed / ids.length + "%";
      return el("tr", {}, [el("th", { scope: "row", text: number + ". " + (data.chapters[number] || "Further exercises") }),
        el("td", {}, [bar, document.createTextNode(passed + " of " + ids.length)])]);
    });
    var caption = "Progress: " + done + " of " + data.order.length + " exercises done, " + points + " of " + all + " points.";
    return el("table", { "class": "ls-table" }, [el("caption", { text: caption }),
      el("thead", {}, [el("tr", {}, [el("th", { scope: "col", text: "Chapter" }), el("th", { scope: "col", text: "Done" })])]),
      el("tbody", {}, rows)]);
  }

  function transfer(message) {
    var box = el("textarea", { id: "ls-progress-text", rows: "6", spellcheck: "false", autocomplete: "off" });
    return el("div", { "class": "ls-transfer" }, [
      el("p", {}, [el("label", { "for": box.id, text: "Progress as text: copy it to another browser, or paste the progress.json of your notebooks here." }), box]),
      el("p", { "class": "ls-buttons" }, [
        el("button", { type: "button", text: "Show my progress as text", onclick: function () {
          box.value = progressText(load()); box.focus(); box.select(); message("Your progress stands in the box below.");
        } }),
        el("button", { type: "button", text: "Take in this text", onclick: function () {
          var found = readProgress(box.value);
          if (!found) { message("This is not the text of a progress file. Nothing was changed."); return; }
          mergeProgress(found);
          message("Taken in: " + Object.keys(found).length + " exercises. The better state of each is kept.");
        } }),
        el("button", { type: "button", text: "Forget everything", onclick: function () {
          if (!window.confirm("Forget everything that you passed on these pages?")) { return; }
          remember(function (entries) { Object.keys(entries).forEach(function (id) { delete entries[id]; }); });
          message("Forgotten. Every exercise is open again.");
        } })
      ])
    ]);
  }

  function selfCheck() {
    var place = document.querySelector("[data-progress]");
    var list = document.querySelector(".ls-checklist ol, ol.ls-checklist");
    if (!place && !list) { return; }
    var table = el("div", {}), note = el("p", { role: "status", "aria-live": "polite" });
    function message(text) { note.textContent = text; }
    function refresh() {
      var entries = load();
      table.replaceChildren(chapterTable(entries));
      if (list) { showItems(list, entries); typeset(list); }
      if (!stored) { message("This browser stores nothing for these pages: what you pass lasts until the page is closed."); }
    }
    if (place) { place.replaceChildren(table, note, transfer(message)); }
    refresh();
    window.addEventListener("labsupport-progress", refresh);
    window.addEventListener("storage", refresh);
    window.addEventListener("pageshow", refresh);
  }

  function start() { answerOnPage(); selfCheck(); }

  window.labsupportJudge = { judge: judge, inlineHtml: inlineHtml, closeMatches: closeMatches, readProgress: readProgress };
  if (document.readyState === "loading") { document.addEventListener("DOMContentLoaded", start); } else { start(); }
})();
