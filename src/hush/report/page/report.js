"use strict";
(function () {
  const report = JSON.parse(document.getElementById("report").textContent);
  const modes = { solid: "lines", dash: "lines", dot: "lines", stairs: "lines", points: "markers" };
  const NARROW = 520;

  function trace(line) {
    if (line.style === "bars") {
      return { type: "bar", x: line.x, y: line.y, name: line.name, marker: { color: line.colour } };
    }
    const dash = line.style === "dash" || line.style === "dot" ? line.style : "solid";
    return {
      type: "scatter", x: line.x, y: line.y, name: line.name, mode: modes[line.style], connectgaps: false,
      line: { color: line.colour, dash: dash, width: 2, shape: line.style === "stairs" ? "hv" : "linear" },
      marker: { color: line.colour, size: 10 },
    };
  }

  function decades(values) {
    const kept = values.flat().filter((value) => typeof value === "number" && value > 0).map(Math.log10);
    return kept.length ? Math.max(...kept) - Math.min(...kept) : 0;
  }

  function axis(title, logarithmic, category, values) {
    const span = logarithmic ? decades(values) : 0;
    const ticks = !logarithmic ? {} : { dtick: span > 2.2 ? Math.ceil(span / 7) : "D2" };
    return {
      title: { text: title, standoff: 8 }, type: category ? "category" : logarithmic ? "log" : "linear",
      exponentformat: "power", automargin: true, nticks: 7, zeroline: false, ...ticks,
    };
  }

  function draw(place, plot) {
    const bars = plot.lines.every((line) => line.style === "bars");
    const single = plot.lines.length < 2;
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12 },
      margin: { l: 52, r: 12, t: 8, b: 44 },
      showlegend: !single, legend: { orientation: "h", y: -0.22, yanchor: "top", x: 0, font: { size: 11 } },
      hoverlabel: { bgcolor: "#2b3138", bordercolor: "#2b3138", font: { color: "#ffffff" } },
      xaxis: axis(plot.x_title, plot.x_log, bars, plot.lines.map((line) => line.x)),
      yaxis: axis(plot.y_title, plot.y_log, false, plot.lines.map((line) => line.y)),
      dragmode: window.innerWidth < NARROW ? false : "zoom",
    };
    return Plotly.newPlot(place, plot.lines.map(trace), layout, { displayModeBar: false, responsive: true })
      .then(function () { place.dataset.drawn = "yes"; });
  }

  function value(path) {
    return path.split(".").reduce((found, key) => found[key], report);
  }

  // One plot after another, so that the text can be read at once.
  const waiting = [...document.querySelectorAll(".plot")];
  function next() {
    const place = waiting.shift();
    if (place) { draw(place, value(place.dataset.place)).then(() => setTimeout(next)); }
  }
  requestAnimationFrame(() => setTimeout(next));
  window.addEventListener("beforeprint", () => waiting.splice(0).forEach((place) => draw(place, value(place.dataset.place))));
})();
