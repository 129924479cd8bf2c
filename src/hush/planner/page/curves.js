// Curves on logarithmic axes, drawn as SVG by hand.
const NAMES = { exact: "exact", rdp: "Rényi" };
const WORDS = { steps: "steps", noise_multiplier: "noise multiplier" };
const BOX = { left: 52, right: 400, top: 14, bottom: 226 };

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function scale(low, high, from, to) {
  const span = Math.log(high / low) || 1;
  return (value) => from + (Math.log(value / low) / span) * (to - from);
}

// Powers of ten, with 2 and 5 between them where there is room.
function ticks(low, high) {
  const made = [];
  const factors = high / low > 1000 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(1));
      if (value >= low * 0.999 && value <= high * 1.001) made.push(value);
    }
  const stride = Math.ceil(made.length / 7);
  return made.filter((_, index) => index % stride === 0);
}

function short(value) {
  if (value >= 1e6) return `${value / 1e6}M`;
  if (value >= 1e4) return `${value / 1e3}k`;
  return value < 1e-3 ? value.toExponential(0) : String(value);
}

export function drawCurve(svg, lines, here, target, name) {
  const known = lines.map(({ method, x, epsilon }) => ({
    method, points: x.map((place, index) => [place, epsilon[index]]).filter(([, value]) => value > 0),
  })).filter(({ points }) => points.length > 1);
  svg.replaceChildren();
  if (!known.length) return svg.append(element("text", { x: 60, y: 120 }, "Nothing finite to draw."));
  const all = known.flatMap(({ points }) => points);
  const xs = all.map(([x]) => x), ys = all.map(([, y]) => y);
  const [xLow, xHigh] = [Math.min(...xs), Math.max(...xs)];
  const [yLow, yHigh] = [Math.min(...ys) / 1.1, Math.max(...ys) * 1.1];
  const x = scale(xLow, xHigh, BOX.left, BOX.right), y = scale(yLow, yHigh, BOX.bottom, BOX.top);
  svg.append(...axes(x, y, ticks(xLow, xHigh), ticks(yLow, yHigh), name));
  if (target > yLow && target < yHigh) svg.append(
    element("line", { class: "target", x1: BOX.left, x2: BOX.right, y1: y(target), y2: y(target) }),
    element("text", { class: "target", x: BOX.right + 4, y: y(target) + 4 }, "target"));
  svg.append(...known.flatMap((line) => drawn(line, x, y, target > yLow && target < yHigh ? y(target) : -99)));
  if (here.y > yLow && here.y < yHigh && here.x >= xLow && here.x <= xHigh) svg.append(...marked(here, x, y));
  svg.setAttribute("aria-label", `Epsilon against ${WORDS[name]}: ${here.text} at ${here.x}; the curve goes from ${short(Number(all[0][1].toPrecision(3)))} at ${short(Number(xLow.toPrecision(3)))} to ${short(Number(known[0].points.at(-1)[1].toPrecision(3)))} at ${short(Number(xHigh.toPrecision(3)))}.`);
}

function axes(x, y, xTicks, yTicks, name) {
  const made = [];
  for (const value of yTicks) made.push(
    element("line", { class: "grid", x1: BOX.left, x2: BOX.right, y1: y(value), y2: y(value) }),
    element("text", { x: BOX.left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  for (const value of xTicks) made.push(
    element("line", { class: "axis", x1: x(value), x2: x(value), y1: BOX.bottom, y2: BOX.bottom + 4 }),
    element("text", { x: x(value), y: BOX.bottom + 18, "text-anchor": "middle" }, short(value)));
  made.push(element("line", { class: "axis", x1: BOX.left, x2: BOX.right, y1: BOX.bottom, y2: BOX.bottom }));
  made.push(element("text", { x: (BOX.left + BOX.right) / 2, y: BOX.bottom + 36, "text-anchor": "middle" }, WORDS[name]));
  return made;
}

function drawn({ method, points }, x, y, taken) {
  const path = points.map(([place, value], index) => `${index ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const [endX, endY] = [x(points.at(-1)[0]), y(points.at(-1)[1])];
  const shift = (method === "exact" ? 10 : -2) + (Math.abs(endY + (method === "exact" ? 10 : -2) - taken) < 11 ? 12 : 0);
  return [element("path", { class: method, d: path }),
    element("text", { class: method, x: endX + 4, y: endY + shift }, NAMES[method])];
}

function marked(here, x, y) {
  const [placeX, placeY] = [x(here.x), y(here.y)];
  const anchor = placeX > 300 ? "end" : "start";
  return [element("circle", { class: "here", cx: placeX, cy: placeY, r: 5.5 }),
    element("text", { class: "here", x: placeX + (anchor === "end" ? -9 : 9), y: placeY - 9, "text-anchor": anchor }, `ε ${here.text}`)];
}
