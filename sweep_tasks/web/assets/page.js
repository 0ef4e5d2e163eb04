// What takes a script: following Airflow's theme, opening links outside of the frame, dialogs and charts. Everything else
// works without scripts.
"use strict";

// --- theme: that of the surrounding Airflow page, otherwise the system's ---------------------------------------------

function outer() {
  try {
    return window.parent !== window ? window.parent.document : null;
  } catch {
    return null; // the frame of another origin
  }
}

function followTheme() {
  const around = outer()?.documentElement;
  if (!around) return;
  const take = () => {
    const named = around.classList.contains("dark") ? "dark" : around.classList.contains("light") ? "light" : "";
    if (document.documentElement.dataset.theme !== named) {
      document.documentElement.dataset.theme = named;
      draw();
    }
  };
  new MutationObserver(take).observe(around, { attributes: true, attributeFilter: ["class"] });
  take();
}

// --- links into Airflow: the frame can only navigate itself, so the surrounding page opens them ----------------------

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  const around = outer();
  if (!link || !around || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const theirs = around.createElement("a");
  theirs.href = link.href;
  around.body.append(theirs);
  theirs.click();
  theirs.remove();
});

// --- dialogs ---------------------------------------------------------------------------------------------------------

document.addEventListener("htmx:afterSwap", (event) => {
  const dialog = document.getElementById("dialog");
  if (event.detail.target === dialog && dialog.firstElementChild) {
    if (!dialog.open) dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
  }
});
document.addEventListener("click", (event) => {
  const dialog = document.getElementById("dialog");
  if (event.target.closest("[data-cancel]") && dialog?.open) {
    event.preventDefault();
    dialog.close();
  }
});
// A response that is not a form (the store is down, rights are missing) is shown as a page. While the store is down, the
// notice replaces the overview.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, target, pathInfo } = event.detail;
  if (xhr.status >= 400 && target?.id === "dialog") window.location.assign(pathInfo.requestPath);
  if (xhr.status === 503 && target?.id === "overview") {
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  }
  // Not while a button is pressed or a dialog is open: the next refresh follows soon.
  if (target?.id === "overview" && (pressed || document.getElementById("dialog")?.open)) event.detail.shouldSwap = false;
  if (target?.id === "overview" && event.detail.shouldSwap) remember(target);
});
let pressed = 0;
document.addEventListener("htmx:beforeSend", (event) => { if (event.detail.requestConfig.elt.matches(".press")) pressed += 1; });
document.addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.requestConfig.elt.matches(".press")) return;
  pressed -= 1;
  report({ id: "press" }, event.detail.xhr.status ? null : NO_ANSWER);
});
// A form is sent once, also on a double click.
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-once]");
  if (!form) return;
  if (form.ariaBusy === "true") return event.preventDefault();
  form.ariaBusy = "true";
  const button = form.querySelector("button[type=submit]");
  if (button) button.textContent = `${button.textContent.trim()} …`;
});

// --- notices that the page is out of date ----------------------------------------------------------------------------

const fetched = new Map(), failures = new Map();
const NO_ANSWER = { reason: "no_answer", words: "Airflow does not answer" };

function clock(at) {
  return at.toISOString().slice(11, 19);
}

function report(element, why) {
  if (!element?.id) return;
  if (why === null) {
    fetched.set(element.id, new Date());
    failures.delete(element.id);
  } else {
    failures.set(element.id, why);
  }
  const notice = document.getElementById("stale");
  if (!notice) return;
  const lines = [...failures].map(([id, { reason, words }]) => {
    const line = document.createElement("span");
    line.dataset.about = id;
    line.dataset.reason = reason;
    const what = id === "overview" ? "This page" : `The section on ${document.getElementById(id)?.dataset.what ?? id}`;
    line.textContent = id === "press"
      ? "Airflow did not answer the last request: nothing was done, press the button again."
      : `${what} is not up to date since ${clock(fetched.get(id) ?? opened)} UTC, because ${words}.`;
    return line;
  });
  notice.hidden = lines.length === 0;
  const text = lines.map((line) => line.textContent).join(" ");
  if (notice.textContent !== text) notice.replaceChildren(...lines.flatMap((line, at) => (at ? [" ", line] : [line])));
  document.body.classList.toggle("outdated", failures.has("overview"));
}

function failureOf(xhr) {
  if (xhr.status === 401 || xhr.status === 403) {
    return { reason: "not_allowed", words: "your login has expired or your rights have changed: log in again" };
  }
  return xhr.status ? { reason: `status_${xhr.status}`, words: `Airflow answered with ${xhr.status}` } : NO_ANSWER;
}

const opened = new Date();
document.addEventListener("htmx:afterRequest", (event) => {
  const { xhr, successful, requestConfig } = event.detail; // the element itself may be replaced by now
  const known = successful || (xhr.status === 503 && requestConfig.elt.id === "overview");
  if (!requestConfig.elt.matches(".press")) report(requestConfig.elt, known ? null : failureOf(xhr));
});
for (const kind of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(kind, ({ detail: { requestConfig: { elt } } }) => {
    if (!elt.matches(".press")) report(elt, NO_ANSWER);
  });
}

// --- what a refresh preserves: the scroll position of tables, the selected shard, charts -----------------------------

let before = null;

function remember(overview) {
  before = {
    scrolled: new Map([...overview.querySelectorAll(".scroll")].map((each) => [each.ariaLabel, each.scrollLeft])),
    positions: new Map([...overview.querySelectorAll("[data-strip]")].map((each) => [each.id, each.dataset.at])),
    charts: new Map([...overview.querySelectorAll(".chart")].map((each) => [each.id, each])),
    times: overview.querySelector("[data-times]")?.dataset.times,
  };
}

function restore() {
  if (!before) return;
  for (const each of document.querySelectorAll("#overview .scroll")) {
    each.scrollLeft = before.scrolled.get(each.ariaLabel) ?? 0;
  }
  for (const strip of document.querySelectorAll("#overview [data-strip]")) {
    const at = before.positions.get(strip.id);
    if (at !== undefined) showStep(strip, Number(at));
  }
  const times = document.querySelector("#overview [data-times]")?.dataset.times;
  for (const place of document.querySelectorAll("#overview .chart")) {
    const old = before.charts.get(place.id);
    const same = old?.dataset.series === place.dataset.series && times === before.times;
    if (old && (same || old.matches(".inspected"))) place.replaceWith(old);
  }
  before = null;
}

document.addEventListener("pointerover", (event) => {
  for (const each of document.querySelectorAll(".chart.inspected")) each.classList.remove("inspected");
  event.target.closest?.(".chart")?.classList.add("inspected");
});

// --- the strip of shards: one tab stop, arrow keys to move, and a line that describes the selected shard -------------

function showStep(strip, number) {
  const cells = [...strip.children];
  if (!cells.length) return;
  const at = Math.max(0, Math.min(cells.length - 1, number));
  cells.forEach((cell, index) => { cell.ariaSelected = String(index === at); });
  strip.dataset.at = at;
  strip.setAttribute("aria-activedescendant", cells[at].id);
  const readout = document.getElementById(strip.id.replace("strip-", "readout-"));
  if (readout) readout.textContent = cells[at].ariaLabel;
}

document.addEventListener("keydown", (event) => {
  const strip = event.target.closest?.("[data-strip]");
  if (!strip) return;
  const at = Number(strip.dataset.at ?? -1), last = strip.children.length - 1;
  const target = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last };
  if (!(event.key in target)) return;
  event.preventDefault();
  showStep(strip, target[event.key]);
});
document.addEventListener("focusin", (event) => {
  const strip = event.target.closest?.("[data-strip]");
  if (strip && strip.dataset.at === undefined) showStep(strip, 0);
});
document.addEventListener("pointerover", (event) => {
  const cell = event.target.closest?.("[data-strip] > li");
  if (cell) showStep(cell.parentElement, [...cell.parentElement.children].indexOf(cell));
});

// --- charts ----------------------------------------------------------------------------------------------------------

const drawn = new Map();
const LEAST_S = 6 * 3600; // otherwise the axis of a single point would span years

function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function moment(seconds) { // in UTC, like everything else on the page
  return new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
}

function draw(again = true) {
  if (!window.uPlot) return;
  for (const [place, chart] of drawn) {
    if (again || !place.isConnected) {
      chart.destroy();
      drawn.delete(place);
    }
  }
  const ink = colour("--quiet"), line = colour("--line"), lines = [colour("--series-1"), colour("--series-2")];
  for (const place of document.querySelectorAll(".chart[data-series]")) {
    if (drawn.has(place)) continue;
    const times = JSON.parse(place.closest("[data-times]").dataset.times), given = Object.entries(JSON.parse(place.dataset.series));
    const hours = (_, marks) => marks.map((at) => moment(at).slice(at % 86400 ? 11 : 5, at % 86400 ? 16 : 10));
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const unit = place.dataset.unit;
    const few = times.length < 200;
    const series = given.map(([label], number) => ({
      label, stroke: lines[number % lines.length], width: 2, spanGaps: true, points: { show: few, size: 5 },
      value: (_, value) => (value == null ? "–" : `${+value.toFixed(2)} ${unit}`),
    }));
    drawn.set(place, new window.uPlot(
      {
        width: place.clientWidth, height: 180, series: [{ value: (_, at) => (at == null ? "–" : moment(at)) }, ...series],
        axes: [{ ...axis, values: hours }, { ...axis, size: 55 }], scales: {
          x: { range: (_, first, last) => [Math.min(first, last - LEAST_S), last] },
          y: { range: (_, least, most) => [0, Math.max(most || 0, 1)] },
        },
        tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"), cursor: { points: { size: 7 } },
      },
      [times, ...given.map(([, values]) => values)],
      place,
    ));
  }
}

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id !== "overview" && event.detail.elt?.id !== "overview") return;
  restore();
  draw(false);
});
window.addEventListener("resize", () => draw());
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
followTheme();
draw();
