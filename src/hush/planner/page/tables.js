// Tables, filled with text only: nothing that came from a file or a name is ever read as HTML.
const byId = (id) => document.getElementById(id);
const ORDER = ["exact", "rdp", "moments", "optimal", "advanced", "basic", "gdp_clt"];

export async function ask(name, body) {
  try {
    const answer = await fetch(`api/${name}`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
    if (answer.ok || answer.status === 422) return await answer.json();
    return { errors: { "": (await answer.text()).slice(0, 200) } };
  } catch {
    return { errors: { "": "The planner does not answer; is hush plan still running?" } };
  }
}

function cell(content, kind = "td", className = "") {
  const place = document.createElement(kind);
  if (content instanceof Node) place.append(content);
  else place.textContent = content;
  if (kind === "th") place.scope = "row";
  if (className) place.className = className;
  return place;
}

function fill(id, rows, emptyText) {
  const body = byId(id).tBodies[0];
  if (rows.length) return body.replaceChildren(...rows);
  const row = document.createElement("tr"), only = cell(emptyText, "td", "empty");
  only.colSpan = byId(id).tHead.rows[0].cells.length;
  row.append(only);
  body.replaceChildren(row);
}

function tableRow(...cells) {
  const row = document.createElement("tr");
  row.append(...cells);
  return row;
}

export function showMethods(methods) {
  const body = byId("methods").tBodies[0];
  if (!body.rows.length)
    body.append(...ORDER.map((name) => {
      const row = tableRow(cell(name, "th"), cell("…", "td", "number"), cell(""));
      row.id = `method-${name}`;
      return row;
    }));
  for (const { method, text, kind, notes } of methods) {
    const [, epsilon, what] = byId(`method-${method}`).cells;
    epsilon.textContent = text;
    what.textContent = kind;
    what.title = notes.join("; ");
  }
}

export function showWhatIf({ find, rows }, names) {
  byId("what-if-result").textContent = names[find];
  fill("what-if", rows.map((row) => {
    const result = cell(row.text, "td", "number");
    result.title = row.reason;
    return tableRow(cell(row.name, "th"), result, cell(row.change, "td", "number"));
  }), "");
}

function button(text, label, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

export function showPlans(answer, load, remove) {
  byId("message-plans").textContent = Object.values(answer.errors ?? {}).join(" ");
  if (answer.errors) return;
  fill("plans", answer.plans.map(({ name, plan, epsilon_text, noise_text, problem }) => {
    const actions = document.createElement("span");
    actions.append(button("Load", `Load ${name}`, () => load(plan)), " ", button("Remove", `Remove ${name}`, () => remove(name)));
    const epsilon = cell(epsilon_text, "td", "number");
    epsilon.title = problem;
    const numbers = [plan.delta < 1e-3 ? plan.delta.toExponential() : plan.delta, noise_text ?? "-", plan.num_examples, plan.expected_batch_size, Number(plan.epochs.toPrecision(4)), plan.steps];
    return tableRow(cell(name, "th"), epsilon, ...numbers.map((value) => cell(value, "td", "number")), cell(actions));
  }), "None yet.");
}

export async function showRuns() {
  const answer = await ask("runs", {});
  byId("message-runs").textContent = Object.values(answer.errors ?? {}).join(" ");
  if (answer.errors) return;
  fill("budgets", answer.budgets.map(budgetRow), "No ledger in this folder.");
  fill("runs", answer.runs.map(runRow), "No run in this folder yet: hush train writes them to runs.");
}

function budgetRow(row) {
  if (row.problem) {
    const what = cell(row.problem, "td", "message");
    what.colSpan = 5;
    return tableRow(what, cell(row.ledger));
  }
  let used = "";
  if (row.share !== null) {
    used = document.createElement("meter");
    [used.min, used.max, used.high, used.optimum, used.value] = [0, 1, 0.8, 0, row.share];
    used.setAttribute("aria-label", `${Math.round(100 * row.share)} percent of ${row.data} used`);
  }
  return tableRow(cell(row.data, "th"), cell(row.spent_text, "td", "number"), cell(row.left_text, "td", "number"), cell(row.cap_text), cell(used), cell(row.ledger));
}

function runRow(run) {
  const numbers = [run.epsilon_text, run.delta_text, run.steps ?? ""].map((value) => cell(value, "td", "number"));
  return tableRow(cell(run.complete ? run.name : `${run.name} (ended early)`, "th"), cell(run.data), ...numbers, cell(reportOf(run)));
}

function reportOf(run) {
  if (run.report) return reportLink(run.report, run.name);
  const place = document.createElement("span");
  place.append(button("Make report", `Make a report of ${run.name}`, async () => {
    place.textContent = "being written…";
    const answer = await ask("report", { run: run.name });
    place.replaceChildren(answer.errors ? Object.values(answer.errors).join(" ") : reportLink(answer.report, run.name));
  }));
  return place;
}

function reportLink(address, name) {
  const link = document.createElement("a");
  link.href = address;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  link.textContent = "Report";
  link.setAttribute("aria-label", `Report of ${name}`);
  return link;
}
