// The controls and the questions. Every number on the page comes from the server; nothing is computed here.
import { drawCurve } from "./curves.js";
import { ask, showMethods, showPlans, showRuns, showWhatIf } from "./tables.js";

const FIELDS = {
  num_examples: { label: "Data size", help: "examples in the data set; a public figure", from: 100, to: 1e8, whole: true, start: 1438 },
  expected_batch_size: { label: "Batch", help: "examples in a batch, on average", from: 1, to: 1e5, whole: true, start: 256 },
  epochs: { label: "Epochs", help: "how often an example takes part, on average", from: 0.1, to: 1000, start: 40 },
  noise_multiplier: { label: "Noise multiplier", help: "noise over the bound on one example's gradient", from: 0.1, to: 100, start: 2 },
  delta: { label: "Delta", help: "accepted chance of failure, far below 1 over the data size", from: 1e-12, to: 1e-2, start: 1e-5 },
  epsilon: { label: "Target epsilon", help: "the most that may be spent", from: 0.01, to: 100, start: 3 },
};
const FOUND = { epsilon: "epsilon", noise_multiplier: "noise", epochs: "epochs", expected_batch_size: "batch", num_examples: "data size", delta: "delta" };
const byId = (id) => document.getElementById(id);
const state = { find: "epsilon", answer: null, asking: false, changed: false, follow: 0, pending: new Set(), following: false, moved: 0 };

// Places of a slider: values that are pleasant to read, evenly on a logarithmic scale, none twice.
function places({ from, to, whole }) {
  const perDecade = 60, count = Math.round(perDecade * Math.log10(to / from)), values = new Set();
  for (let index = 0; index <= count; index++) {
    const value = from * 10 ** (index / perDecade);
    values.add(whole ? Math.round(Number(value.toPrecision(3))) : Number(value.toPrecision(3)));
  }
  return [...values];
}

function buildControls() {
  for (const [name, field] of Object.entries(FIELDS)) {
    field.places = places(field);
    const box = document.createElement("div");
    box.className = "field slider";
    box.innerHTML = `<label for="${name}">${field.label}</label>
      <input type="range" id="${name}-slider" min="0" max="${field.places.length - 1}" step="1" aria-label="${field.label}, slider">
      <input type="text" id="${name}" inputmode="decimal" spellcheck="false" maxlength="60" aria-describedby="message-${name} help-${name}">
      <p class="help" id="help-${name}">${field.help}</p><p class="message" id="message-${name}" role="alert"></p>`;
    byId("sliders").append(box);
    field.slider = byId(`${name}-slider`);
    field.input = byId(name);
    field.slider.addEventListener("input", () => { setText(name, text(field.places[field.slider.value])); change(); });
    field.input.addEventListener("input", () => { setSlider(name); change(); });
    set(name, field.start);
  }
  for (const [name, label] of Object.entries(FOUND)) {
    const choice = document.createElement("label");
    choice.innerHTML = `<input type="radio" name="find" value="${name}"${name === state.find ? " checked" : ""}> ${label}`;
    byId("find").append(choice);
  }
  byId("find").addEventListener("change", (event) => { chooseUnknown(event.target.value); change(); });
  byId("relation").addEventListener("change", change);
  byId("data").addEventListener("input", () => {
    const known = [...byId("known").options].find((option) => option.value === byId("data").value);
    if (known && state.find !== "num_examples") set("num_examples", Number(known.dataset.examples));
    change();
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
}

function setText(name, shown) {
  const field = FIELDS[name];
  field.input.value = shown;
  field.slider.setAttribute("aria-valuetext", shown);
}

function setSlider(name) {
  const field = FIELDS[name], value = Number(field.input.value);
  if (!(value > 0)) return;
  const distance = (place) => Math.abs(Math.log(place / value));
  let best = 0;
  field.places.forEach((place, index) => { if (distance(place) < distance(field.places[best])) best = index; });
  field.slider.value = best;
  field.slider.setAttribute("aria-valuetext", field.input.value);
}

function text(value) {
  return typeof value === "number" && value < 1e-3 ? value.toExponential() : String(value);
}

function set(name, value) {
  setText(name, text(value));
  setSlider(name);
}

function chooseUnknown(find) {
  state.find = find;
  for (const [name, field] of Object.entries(FIELDS)) {
    const unknown = name === find && find !== "epsilon"; // the target stays a setting: the cost is what is found
    field.input.readOnly = unknown;
    field.slider.disabled = unknown;
  }
}

function question() {
  const asked = { find: state.find, relation: byId("relation").value, data: byId("data").value };
  for (const [name, field] of Object.entries(FIELDS)) asked[name] = field.input.value;
  return asked;
}

// One question for numbers at a time; whatever moved meanwhile is asked about next.
async function change() {
  state.changed = true;
  state.moved = performance.now();
  if (state.asking) return;
  state.asking = true;
  while (state.changed) {
    state.changed = false;
    showAnswer(await ask("numbers", question()));
  }
  state.asking = false;
  if (state.answer) for (const kind of LATER) state.pending.add(kind);
  follow();
}

function showAnswer(answer) {
  const errors = answer.errors ?? {}, warnings = answer.warnings ?? {};
  for (const name of ["", ...Object.keys(FIELDS)]) {
    const place = byId(`message-${name}`);
    place.textContent = errors[name] ?? warnings[name] ?? "";
    place.classList.toggle("warning", !(name in errors));
    FIELDS[name]?.input.setAttribute("aria-invalid", String(name in errors));
  }
  if (errors.find || errors.relation) byId("message-").textContent = errors.find ?? errors.relation;
  for (const id of ["result", "methods", "command", "python", "what-if", "curve-steps", "curve-noise_multiplier"])
    byId(id).classList.toggle("stale", Boolean(answer.errors));
  if (answer.errors) {
    state.answer = null;
    byId("verdict").textContent = "";
    byId("cost").textContent = "–";
    byId("lower").textContent = byId("upper").textContent = "–";
    byId("command").textContent = byId("python").textContent = "";
    return;
  }
  state.answer = answer;
  const plan = answer.plan;
  byId("cost").textContent = answer.epsilon_text;
  [byId("lower").textContent, byId("upper").textContent] = answer.interval_text;
  byId("delta-shown").textContent = answer.delta_text;
  byId("steps").textContent = plan.steps.toLocaleString("en");
  byId("sampling-prob").textContent = Number(plan.sampling_prob.toPrecision(4));
  byId("found-line").textContent = answer.found === "epsilon" ? "" : `Found: ${FOUND[answer.found]} ${answer.found_text}.`;
  byId("verdict").textContent = answer.inside ? "inside the target" : "over the target";
  byId("verdict").className = `badge ${answer.inside ? "good" : "bad"}`;
  byId("command").textContent = answer.command || "No command: see the message at delta.";
  byId("python").textContent = answer.python;
  if (answer.found !== "epsilon") set(answer.found, answer.found_text);
  showMethods(answer.methods);
}

// What takes longer comes afterwards, one at a time, each about the newest plan.
const LATER = ["methods", "what_if", "curves", "slow_methods"];
const REST = 250; // milliseconds without a move before the slowest is asked

async function follow() {
  if (state.following) return;
  state.following = true;
  while (state.pending.size && state.answer) {
    const kind = [...state.pending].sort((a, b) => LATER.indexOf(a) - LATER.indexOf(b)).find((name) => name !== state.last) ?? [...state.pending][0];
    if (kind === "slow_methods" && performance.now() - state.moved < REST) {
      await new Promise((wake) => setTimeout(wake, REST));
      continue;
    }
    state.pending.delete(kind);
    state.last = kind;
    const answer = state.answer;
    const find = kind === "what_if" ? answer.found : "epsilon";
    const more = await ask("later", { ...answer.plan, find, kind });
    if (!more.errors) show(kind, more, answer);
  }
  state.following = false;
}

function show(kind, more, answer) {
  if (kind === "methods" || kind === "slow_methods") showMethods(more.methods);
  else if (kind === "what_if") showWhatIf(more, FOUND);
  else {
    const target = answer.plan.epsilon;
    for (const name of ["steps", "noise_multiplier"])
      drawCurve(byId(`curve-${name}`), more[name].lines, { x: answer.plan[name], y: answer.guarantee.epsilon, text: answer.epsilon_text }, target, name);
  }
}

function load(plan) {
  byId("relation").value = plan.relation;
  for (const name of Object.keys(FIELDS)) set(name, plan[name]);
  document.querySelector(`input[name=find][value=${plan.find}]`).checked = true;
  chooseUnknown(plan.find);
  change();
}

async function copy(event) {
  const source = byId(event.target.dataset.of);
  try {
    await navigator.clipboard.writeText(source.textContent);
    byId("copied").textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(source);
    byId("copied").textContent = "Selected: copy it with your keyboard.";
  }
}

async function changePlans(body) {
  showPlans(await ask("plans", body), load, (name) => changePlans({ change: "remove", name }));
}

buildControls();
for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", copy);
byId("save").addEventListener("submit", (event) => {
  event.preventDefault();
  changePlans({ ...question(), change: "save", name: byId("plan-name").value });
});
byId("refresh").addEventListener("click", showRuns);
await change();
changePlans({});
showRuns();
