"use strict";
(function () {
  const BETWEEN = 1000; // milliseconds
  const live = JSON.parse(document.getElementById("report").textContent);
  const at = (name) => document.getElementById(name);
  let finished = false;
  let marker = null;

  // Four digits, never below the value.
  function up(value) {
    if (!(value > 0)) { return "0"; }
    const unit = 10 ** (Math.floor(Math.log10(value)) - 3);
    return (Math.ceil(value / unit) * unit).toPrecision(4);
  }

  function mark(state) {
    const place = document.querySelector(".plot[data-drawn]");
    if (!place || state.step < 1 || typeof state.epsilon !== "number" || state.epsilon <= 0) { return; }
    if (marker === null) {
      marker = place.data.length;
      const now = { type: "scatter", mode: "markers", name: "now", marker: { color: "#d9482b", size: 12 } };
      Plotly.addTraces(place, { ...now, x: [state.step], y: [state.epsilon] });
    } else {
      Plotly.restyle(place, { x: [[state.step]], y: [[state.epsilon]] }, [marker]);
    }
  }

  window.hushLive = function (state) {
    finished = state.state === "finished";
    at("state").textContent = finished ? "finished" : state.step ? "training" : "waiting for the first step";
    at("bar").value = state.step;
    at("step").textContent = state.step.toLocaleString("en");
    at("epsilon").textContent = state.step && typeof state.epsilon === "number" ? up(state.epsilon) : "–";
    const left = state.step ? (state.seconds / state.step) * (live.steps - state.step) : null;
    at("left").textContent = finished ? "0" : left === null ? "–" : Math.ceil(left).toLocaleString("en");
    mark(state);
    if (finished && /^report\.html$/.test(state.report || "")) { location.replace(state.report); }
  };

  function ask() {
    const script = document.createElement("script");
    script.src = "live.js?" + Date.now();
    script.onload = script.onerror = function () {
      script.remove();
      if (!finished) { setTimeout(ask, BETWEEN); }
    };
    document.body.append(script);
  }
  ask();
})();
