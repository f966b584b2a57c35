/* The training map: choose a box by mouse, finger or keys, show one group, or read all boxes as a list.
   Drawings and descriptions are what a reader without scripts sees; this script only chooses what is in view. */
(window.labsupport = window.labsupport || { pending: [], register: function () { this.pending.push(arguments); } })
  .register("training-map", function (root, config, fallback) {
    "use strict";
    var lab = window.labsupport, el = lab.el, rules = lab.logic["training-map"];
    var drawings = [].slice.call(fallback.querySelectorAll(".map-drawing"));
    var list = fallback.querySelector(".map-list");
    var items = [].slice.call(list.querySelectorAll(".map-item"));
    var links = [].slice.call(fallback.querySelectorAll(".map-box"));
    var ids = items.map(function (item) { return item.getAttribute("data-box"); });
    var group = 0, now = ids[0], all = false, timer = null;

    var live = lab.announcer();
    var tip = el("p", { "class": "map-tip", hidden: true });
    var place = el("div", { "class": "map-place" }, drawings.concat([tip]));
    var filters = [{ id: 0, name: "All" }].concat(config.groups).map(function (one) {
      var count = rules.members(ids, one.id).length;
      var name = (one.id ? one.id + " " : "") + one.name + " (" + count + ")";
      return el("button", { type: "button", "data-group": one.id, text: name, onclick: function () { choose(one.id); } });
    });
    var back = el("button", { type: "button", text: "previous box", onclick: function () { move(-1); } });
    var next = el("button", { type: "button", text: "next box", onclick: function () { move(1); } });
    var whole = el("button", { type: "button", text: "all as a list", onclick: function () { all = !all; update(); } });

    function item(id) { return items[ids.indexOf(id)]; }
    function title(id) { return item(id).querySelector("h4").textContent; }
    function summary(id) { return item(id).querySelector(".map-summary").textContent; }

    function update() {
      var shown = rules.members(ids, group);
      if (shown.indexOf(now) < 0) { now = shown[0]; }
      items.forEach(function (one) {
        var id = one.getAttribute("data-box");
        one.hidden = shown.indexOf(id) < 0 || (!all && id !== now);
      });
      list.querySelectorAll(".map-group").forEach(function (one) { one.hidden = !one.querySelector(".map-item:not([hidden])"); });
      list.classList.toggle("map-one", !all);
      links.forEach(function (link) {
        var id = link.getAttribute("data-box"), off = shown.indexOf(id) < 0;
        link.setAttribute("class", off ? "map-box map-off" : "map-box");
        link.setAttribute("tabindex", id === now ? "0" : "-1");
        if (id === now) { link.setAttribute("aria-current", "true"); } else { link.removeAttribute("aria-current"); }
      });
      filters.forEach(function (button) { button.setAttribute("aria-pressed", String(+button.getAttribute("data-group") === group)); });
      whole.setAttribute("aria-pressed", String(all));
      back.disabled = shown.indexOf(now) === 0;
      next.disabled = shown.indexOf(now) === shown.length - 1;
    }

    function show(id) {
      now = id;
      update();
      live.textContent = title(id) + ". " + summary(id);
      if (window.history && history.replaceState) { history.replaceState(null, "", "#" + item(id).id); }
    }

    function choose(number) {
      group = number;
      update();
      var count = rules.members(ids, group).length;
      live.textContent = (group ? config.groups[group - 1].name : "All boxes") + ": " + count + " boxes.";
    }

    function move(by) { show(rules.step(rules.members(ids, group), now, by)); }

    function hint(link, pointed) {
      stay();
      byPointer = pointed;
      tip.textContent = "";
      tip.appendChild(el("strong", { text: title(link.getAttribute("data-box")) }));
      tip.appendChild(document.createTextNode(": " + summary(link.getAttribute("data-box"))));
      tip.hidden = false;
      var box = link.getBoundingClientRect(), frame = place.getBoundingClientRect();
      var left = Math.min(Math.max(0, box.left - frame.left), Math.max(0, frame.width - tip.offsetWidth));
      var below = box.bottom - frame.top + 6, above = box.top - frame.top - tip.offsetHeight - 6;
      tip.style.left = left + "px";
      tip.style.top = (below + tip.offsetHeight > frame.height && above > 0 ? above : below) + "px";
    }

    var byPointer = false, leaving = false;
    function stay() { clearTimeout(timer); leaving = false; }
    function unhint() {
      stay();
      leaving = true;
      timer = setTimeout(function () { tip.hidden = true; leaving = false; }, 150);
    }

    tip.addEventListener("pointerenter", stay);
    // A browser under load may leave out the event of leaving a box; the next movement makes up for it.
    document.addEventListener("pointermove", function (event) {
      if (!tip.hidden && byPointer && !leaving && !event.target.closest(".map-tip, [data-box]")) { unhint(); }
    });
    tip.addEventListener("pointerleave", unhint);
    links.forEach(function (link) {
      var id = link.getAttribute("data-box");
      link.addEventListener("click", function (event) {
        event.preventDefault();
        show(id);
        item(id).scrollIntoView({ block: "nearest" });
      });
      link.addEventListener("pointerenter", function (event) { if (event.pointerType === "mouse") { hint(link, true); } });
      link.addEventListener("pointerleave", unhint);
      link.addEventListener("focus", function () { if (link.matches(":focus-visible")) { hint(link, false); } });
      link.addEventListener("blur", unhint);
      link.addEventListener("keydown", function (event) {
        if (event.key === " ") { event.preventDefault(); link.dispatchEvent(new MouseEvent("click", { cancelable: true })); return; }
        var to = rules.key(rules.members(ids, group), id, event.key);
        if (to === null) { return; }
        event.preventDefault();
        show(to);
        link.ownerSVGElement.querySelector("[data-box='" + to + "']").focus();
      });
    });
    document.addEventListener("keydown", function (event) { if (event.key === "Escape") { tip.hidden = true; } });

    function fromAddress() {
      var found = items.filter(function (one) { return "#" + one.id === location.hash; })[0];
      if (!found) { return; }
      if (rules.members(ids, group).indexOf(found.getAttribute("data-box")) < 0) { group = 0; }
      now = found.getAttribute("data-box");
      update();
      found.scrollIntoView({ block: "nearest" });
    }

    var tools = el("div", { "class": "lab-row map-filter", role: "group", "aria-label": "Groups of boxes" }, filters);
    var steps = el("div", { "class": "lab-row" }, [back, next, whole]);
    [tools, steps].forEach(function (row) { row.setAttribute("class", row.getAttribute("class") + " map-tools"); });
    [tools, place, steps, list, live].forEach(function (node) { root.appendChild(node); });
    update();
    fromAddress();
    window.addEventListener("hashchange", fromAddress);
  }, {
    /** The boxes of a group, in order; group 0 is all of them. */
    members: function (ids, group) { return ids.filter(function (id) { return !group || +id.charAt(0) === group; }); },
    /** The box `by` places on, held inside the list. */
    step: function (shown, now, by) {
      return shown[Math.min(Math.max(shown.indexOf(now) + by, 0), shown.length - 1)];
    },
    /** Where a key leads from a box; null for a key that moves nothing. */
    key: function (shown, now, key) {
      if (key === "ArrowRight" || key === "ArrowDown") { return this.step(shown, now, 1); }
      if (key === "ArrowLeft" || key === "ArrowUp") { return this.step(shown, now, -1); }
      if (key === "Home") { return shown[0]; }
      if (key === "End") { return shown[shown.length - 1]; }
      return null;
    }
  });
