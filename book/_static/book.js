/* The page's own behaviour: colours, menu, search key, and scrolling boxes that a keyboard can reach.
   A classic script, so that it also runs from a file. It must never be needed to read the text. */
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var MODES = ["auto", "light", "dark"];
  var NAMES = { auto: "as the system", light: "light", dark: "dark" };

  function applyMode(mode) {
    root.dataset.mode = mode;
    root.dataset.theme = mode === "auto" ? (dark.matches ? "dark" : "light") : mode;
    var button = document.querySelector(".mode-button");
    button.setAttribute("aria-label", "Colours: " + NAMES[mode]);
    button.title = "Colours: " + NAMES[mode];
  }

  function setUpMode() {
    applyMode(root.dataset.mode);
    document.querySelector(".mode-button").addEventListener("click", function () {
      var mode = MODES[(MODES.indexOf(root.dataset.mode) + 1) % MODES.length];
      applyMode(mode);
      try { localStorage.setItem("book-mode", mode); } catch (error) { /* storage is blocked: the choice lasts for this page */ }
    });
    dark.addEventListener("change", function () { applyMode(root.dataset.mode); });
  }

  function setUpMenu() {
    var button = document.querySelector(".menu-button");
    var nav = document.getElementById("book-nav");
    function setOpen(open) {
      root.classList.toggle("nav-open", open);
      button.setAttribute("aria-expanded", String(open));
      if (open) (nav.querySelector("[aria-current]") || nav.querySelector("a")).focus();
    }
    button.addEventListener("click", function () { setOpen(!root.classList.contains("nav-open")); });
    document.addEventListener("keydown", function (event) {
      if (event.key === "Escape" && root.classList.contains("nav-open")) { setOpen(false); button.focus(); }
    });
    document.addEventListener("click", function (event) {
      if (root.classList.contains("nav-open") && !nav.contains(event.target) && !button.contains(event.target)) setOpen(false);
    });
    var current = nav.querySelector("[aria-current]");
    if (current && current.offsetTop > nav.clientHeight / 2) nav.scrollTop = current.offsetTop - nav.clientHeight / 3;
  }

  function setUpSearchKey() {
    var input = document.querySelector(".book-search input");
    document.addEventListener("keydown", function (event) {
      if ((event.ctrlKey || event.metaKey) && event.key === "k") {
        event.preventDefault();
        if (input.offsetParent) { input.focus(); input.select(); } else { location.href = input.form.action; }
      }
    });
  }

  /* A box whose content is wider than itself scrolls; then it takes part in the tab order and has a name. */
  var BOXES = [
    [".highlight pre, .cell_output pre", "Code or output, scrolls sideways"],
    [".pst-scrollable-table-container, .cell_output .text_html", "Table, scrolls sideways"],
    ["div.math, div.math > mjx-container, mjx-container.wide", "Formula, scrolls sideways"]
  ];
  function markScrolling() {
    document.querySelectorAll("mjx-container:not([display])").forEach(function (formula) {
      var block = formula.closest("p, li, dd, td, th, h1, h2, h3, h4, figcaption, summary");
      if (block) {
        formula.classList.remove("wide");
        formula.classList.toggle("wide", formula.getBoundingClientRect().width > block.clientWidth + 1);
      }
    });
    BOXES.forEach(function (box) {
      document.querySelectorAll(box[0]).forEach(function (element) {
        var scrolls = element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible";
        if (scrolls === element.hasAttribute("data-scrolls")) return;
        element.toggleAttribute("data-scrolls", scrolls);
        if (scrolls) {
          element.tabIndex = 0;
          element.setAttribute("role", "group");
          element.setAttribute("aria-label", box[1]);
        } else {
          ["tabindex", "role", "aria-label"].forEach(function (name) { element.removeAttribute(name); });
        }
      });
    });
  }

  /* Not before the page has loaded: looking at widths makes the browser lay out all of it, and the formulas wait. */
  function setUpScrolling() {
    var waiting = 0;
    function later() { clearTimeout(waiting); waiting = setTimeout(markScrolling, 50); }
    window.addEventListener("resize", later);
    document.addEventListener("toggle", later, true);
    window.addEventListener("load", function () {
      later();
      if (window.MathJax && MathJax.startup && MathJax.startup.promise) MathJax.startup.promise.then(later);
    });
  }

  /* A link to a section lands before the formulas above it are set, and they change their height. So the page goes
     there once more when they are, unless the reader has moved on meanwhile. */
  function setUpTarget() {
    var moved = false;
    var MOVES = ["wheel", "touchmove", "pointerdown", "keydown"];
    function onMove() { moved = true; }
    MOVES.forEach(function (name) { window.addEventListener(name, onMove, { passive: true }); });
    window.addEventListener("load", function () {
      Promise.resolve(window.MathJax && MathJax.startup && MathJax.startup.promise).then(function () {
        MOVES.forEach(function (name) { window.removeEventListener(name, onMove); });
        var target = document.querySelector(":target");
        if (target && !moved) target.scrollIntoView();
        root.classList.add("settled");
      });
    });
  }

  /* The section in view is marked in the list beside the text. */
  function setUpSections() {
    var links = {};
    document.querySelectorAll(".book-sections a[href^='#']").forEach(function (link) {
      links[decodeURIComponent(link.hash.slice(1))] = link;
    });
    if (!window.IntersectionObserver || !Object.keys(links).length) return;
    var seen = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting || !links[entry.target.id]) return;
        document.querySelectorAll(".book-sections a.in-view").forEach(function (link) { link.classList.remove("in-view"); });
        links[entry.target.id].classList.add("in-view");
      });
    }, { rootMargin: "-10% 0px -75% 0px" });
    document.querySelectorAll(".book-article section[id]").forEach(function (section) { seen.observe(section); });
  }

  /* Closed answers and inputs are part of a printed page. */
  function setUpPrint() {
    window.addEventListener("beforeprint", function () {
      document.querySelectorAll(".book-article details:not([open]):not(.sections-inline)").forEach(function (details) {
        details.open = true;
        details.dataset.openedForPrint = "";
      });
    });
    window.addEventListener("afterprint", function () {
      document.querySelectorAll("details[data-opened-for-print]").forEach(function (details) {
        details.open = false;
        delete details.dataset.openedForPrint;
      });
    });
  }

  function start() {
    setUpMode();
    setUpMenu();
    setUpSearchKey();
    setUpScrolling();
    setUpTarget();
    setUpSections();
    setUpPrint();
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
