/* Sliders of explorable figures, and the register of widgets.
   A classic script, so that a page opened from a disk works; scripts may load in any order.
   Without it every figure shows its first frame or its fallback. It never asks the network for anything. */
(function () {
  "use strict";
  var before = window.labsupport || {};
  if (before.ready) { before.mountAll(); return; }
  var SVG = "http://www.w3.org/2000/svg";
  var mounts = {};
  var logic = {};
  var count = 0;

  /** Make an element: attributes starting with "on" are listeners, `text` is its text. */
  function el(tag, attributes, children) {
    var svg = /^(svg|g|path|rect|circle|line|text|title)$/.test(tag);
    var node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    Object.keys(attributes || {}).forEach(function (key) {
      var value = attributes[key];
      if (value === null || value === undefined || value === false) { return; }
      if (key === "text") { node.textContent = value; }
      else if (key.slice(0, 2) === "on") { node.addEventListener(key.slice(2), value); }
      else { node.setAttribute(key, value === true ? "" : value); }
    });
    (children || []).forEach(function (child) {
      node.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
    });
    return node;
  }

  /** A labelled range over a list of texts; calls onchange(index). Keyboard and touch come with the element. */
  function slider(label, values, start, onchange) {
    var id = "lab-slider-" + (++count);
    var output = el("output", { "for": id, text: values[start] });
    var input = el("input", {
      type: "range", id: id, min: 0, max: values.length - 1, step: 1, value: start,
      "aria-valuetext": values[start],
      oninput: function () { set(+input.value); onchange(+input.value); }
    });
    function set(index) {
      input.value = index;
      input.setAttribute("aria-valuetext", values[index]);
      output.textContent = values[index];
    }
    var node = el("div", { "class": "lab-slider" }, [el("label", { "for": id, text: label }), input, output]);
    return { node: node, input: input, set: set };
  }

  /** A region read aloud when its text changes, and seen by nobody. */
  function announcer() {
    return el("p", { "class": "lab-hidden", "aria-live": "polite" });
  }

  function mountExplore(figure) {
    var data = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    var picture = figure.querySelector("svg");
    var live = announcer();
    var index = data.start.slice();
    function draw() {
      var frame = index.reduce(function (sum, i, axis) { return sum * data.axes[axis].values.length + i; }, 0);
      picture.innerHTML = data.frames[frame].map(function (part) { return data.parts[part]; }).join("");
      picture.setAttribute("aria-label", data.alts[frame]);
      live.textContent = data.alts[frame];
      figure.setAttribute("data-frame", frame);
    }
    var panel = el("div", { "class": "lab-controls" }, data.axes.map(function (axis, i) {
      return slider(axis.label, axis.values, index[i], function (value) { index[i] = value; draw(); }).node;
    }));
    var values = figure.querySelector(".lab-values");
    if (values) { values.remove(); }
    figure.insertBefore(panel, picture);
    figure.insertBefore(live, picture.nextSibling);
  }

  function mountWidget(figure, mount) {
    var stage = el("div", { "class": "lab-stage", role: "group", "aria-label": figure.getAttribute("data-alt") });
    var fallback = figure.querySelector(".lab-fallback");
    mount(stage, JSON.parse(figure.getAttribute("data-config")), fallback);
    figure.replaceChild(stage, fallback);
  }

  /** Mount everything on the page that is not mounted yet. A mount that throws leaves its fallback in place. */
  function mountAll() {
    document.querySelectorAll("figure[data-explore]:not([data-mounted])").forEach(function (figure) {
      figure.setAttribute("data-mounted", "");
      mountExplore(figure);
    });
    Object.keys(mounts).forEach(function (name) {
      document.querySelectorAll("figure[data-widget='" + name + "']:not([data-mounted])").forEach(function (figure) {
        figure.setAttribute("data-mounted", "");
        mountWidget(figure, mounts[name]);
      });
    });
  }

  /** register(name, function (root, config, fallback), logic): `logic` holds the widget's pure functions, for tests. */
  function register(name, mount, pure) {
    mounts[name] = mount;
    logic[name] = pure || {};
    if (document.readyState !== "loading") { mountAll(); }
  }

  window.labsupport = {
    ready: true, register: register, mountAll: mountAll, logic: logic, el: el, slider: slider, announcer: announcer
  };
  (before.pending || []).forEach(function (entry) { register.apply(null, entry); });
  if (document.readyState === "loading") { document.addEventListener("DOMContentLoaded", mountAll); }
  else { mountAll(); }
})();
