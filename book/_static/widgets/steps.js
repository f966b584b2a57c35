/* Step-through player: shows one step of a list at a time. The steps are the list that a reader without scripts sees,
   so nothing is written twice; this script only chooses which item is in view. */
(window.labsupport = window.labsupport || { pending: [], register: function () { this.pending.push(arguments); } })
  .register("steps", function (root, config, fallback) {
    "use strict";
    var lab = window.labsupport, el = lab.el, rules = lab.logic.steps;
    var list = fallback.querySelector("ol.lab-steps"), items = [].slice.call(list.children), now = 0;
    var titles = items.map(function (item, i) { return (i + 1) + " of " + items.length; });
    var slider = lab.slider("step", titles, 0, show);
    var live = lab.announcer(), moved = false;
    var back = el("button", { type: "button", text: "previous", onclick: function () { show(rules.move(now, -1, items.length)); } });
    var next = el("button", { type: "button", text: "next", onclick: function () { show(rules.move(now, 1, items.length)); } });

    function show(index) {
      now = index;
      items.forEach(function (item, i) { item.hidden = i !== now; });
      slider.set(now);
      back.disabled = now === 0;
      next.disabled = now === items.length - 1;
      // Nothing has changed for the reader at the start, and formulas may not be set yet.
      if (moved) { live.textContent = titles[now] + ". " + items[now].querySelector(".lab-step-text").textContent; }
      moved = true;
    }

    root.classList.add("lab-player");
    [el("div", { "class": "lab-row" }, [back, next, slider.node]), list, live].forEach(function (node) { root.appendChild(node); });
    show(0);
  }, {
    /** The index `by` steps on, held inside the list. */
    move: function (index, by, count) { return Math.min(Math.max(index + by, 0), count - 1); }
  });
