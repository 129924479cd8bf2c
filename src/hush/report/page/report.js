"use strict";
(function () {
  const report = JSON.parse(document.getElementById("report").textContent);
  const modes = { solid: "lines", dash: "lines", dot: "lines", stairs: "lines", points: "markers" };
  const NARROW = 520, MOST_NAMES = 20;

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

  function positive(values) {
    return values.flat().filter((value) => typeof value === "number" && value > 0);
  }

  function decades(values) {
    const kept = positive(values).map(Math.log10);
    return kept.length ? Math.max(...kept) - Math.min(...kept) : 0;
  }

  // Marks of a logarithmic axis: powers of ten, or 1, 2, 5, 10, 20 ... where there are few of them; none is half a number.
  function marks(values) {
    const span = decades(values), most = Math.ceil(Math.log10(Math.max(...positive(values)))) || 0;
    const least = Math.floor(Math.log10(Math.min(...positive(values)))) || 0;
    const every = span > 2.2 ? Math.ceil(span / 7) : 1, steps = span > 2.2 ? [1] : [1, 2, 5];
    const found = [], names = [];
    for (let power = most; power >= least; power -= every) {
      for (const step of steps) {
        found.push(Number(`${step}e${power}`));
        const plain = power >= -3 && power <= 4;
        names.push(plain ? String(found.at(-1)) : `${step === 1 ? "" : `${step}·`}10<sup>${power}</sup>`);
      }
    }
    return { tickmode: "array", tickvals: found, ticktext: names };
  }

  // Whole numbers get no mark between them, and every bar gets its name while there is room.
  function plainMarks(category, values) {
    const flat = values.flat().filter((value) => value !== null);
    if (category) { return flat.length <= MOST_NAMES ? { tickmode: "linear", dtick: 1 } : {}; }
    const most = flat.every(Number.isInteger) ? Math.max(...flat) : 0;
    return most > 0 && most <= 7 ? { dtick: 1 } : {};
  }

  function axis(title, logarithmic, category, values) {
    return {
      title: { text: title, standoff: 8 }, type: category ? "category" : logarithmic ? "log" : "linear",
      automargin: true, nticks: 7, zeroline: false, ...(logarithmic ? marks(values) : plainMarks(category, values)),
    };
  }

  function draw(place, plot) {
    const bars = plot.lines.every((line) => line.style === "bars");
    const single = plot.lines.length < 2;
    const narrow = window.innerWidth < NARROW;
    // The names stand below each other there.
    if (narrow && plot.lines.length > 3) { place.style.height = `${320 + 18 * plot.lines.length}px`; }
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12 },
      margin: { l: 52, r: 12, t: 8, b: 44 },
      showlegend: !single, legend: { orientation: "h", y: -0.22, yanchor: "top", x: 0, font: { size: 11 } },
      hoverlabel: { bgcolor: "#2b3138", bordercolor: "#2b3138", font: { color: "#ffffff" } },
      xaxis: axis(plot.x_title, plot.x_log, bars, plot.lines.map((line) => line.x)),
      yaxis: axis(plot.y_title, plot.y_log, false, plot.lines.map((line) => line.y)),
      dragmode: narrow ? false : "zoom",
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
