// What the page can't do without a script: follow Airflow's light and dark, open links outside of its frame, ask in a
// dialog, draw. Everything else works without.
"use strict";

// --- light and dark: as the Airflow around us, else as the system -------------------------------------------------

function outer() {
  try {
    return window.parent !== window ? window.parent.document : null;
  } catch {
    return null; // somebody else's frame
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

// --- links into Airflow: its frame lets us navigate nothing but ourselves, so the page around us is asked to ------------

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

// --- asking -----------------------------------------------------------------------------------------------------------

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
// An answer that is no question (the store is down, rights are gone) is shown as the page that it is.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status >= 400 && event.detail.target?.id === "dialog") {
    window.location.assign(event.detail.pathInfo.requestPath);
  }
  if (event.detail.xhr.status === 503 && event.detail.target?.id === "overview") {
    event.detail.shouldSwap = true;
    event.detail.isError = false;
    event.detail.selectOverride = "#overview";
  }
});

// --- drawing ------------------------------------------------------------------------------------------------------------

const drawn = [];
const LEAST_S = 6 * 3600; // a single point would else stand somewhere between years

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

function draw() {
  if (!window.uPlot) return;
  drawn.splice(0).forEach((chart) => chart.destroy());
  const ink = colour("--quiet"), line = colour("--line"), lines = [colour("--series-1"), colour("--series-2")];
  for (const place of document.querySelectorAll(".chart[data-times]")) {
    const times = JSON.parse(place.dataset.times), given = Object.entries(JSON.parse(place.dataset.series));
    const hours = (_, marks) => marks.map((at) => moment(at).slice(at % 86400 ? 11 : 5, at % 86400 ? 16 : 10));
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const unit = place.dataset.unit;
    const few = times.length < 200;
    const series = given.map(([label], number) => ({
      label, stroke: lines[number % lines.length], width: 2, spanGaps: true, points: { show: few, size: 5 },
      value: (_, value) => (value == null ? "–" : `${+value.toFixed(2)} ${unit}`),
    }));
    drawn.push(new window.uPlot(
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

document.addEventListener("htmx:afterSettle", (event) => { if (event.detail.target?.id === "overview") draw(); });
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
followTheme();
draw();
