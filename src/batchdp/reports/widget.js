// A plan with its budget as a slider, or a release by its tables; everything that is shown came with the widget.
const SVG = "http://www.w3.org/2000/svg";
const make = (tag, set = {}, ...inner) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(set)) name in made ? (made[name] = value) : made.setAttribute(name, value);
  made.append(...inner);
  return made;
};
const shape = (tag, set, ...inner) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(set)) made.setAttribute(name, value);
  made.append(...inner);
  return made;
};
const named = (text) => make("bdi", { dir: "auto" }, text);
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const shown = (value) =>
  value === null || Number.isNaN(value) ? "–"
    : value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e12) ? value.toExponential(2) : digits.format(value);
// As many digits as the noise leaves meaning to; none where all is whole, as medians of ages are.
const meant = (value, from, to) => {
  const half = (to - from) / 2;
  const whole = half === 0 || [value, from, to].every(Number.isInteger);
  const most = whole ? 0 : Math.max(0, 1 - Math.floor(Math.log10(half)));
  if (most > 6 || Math.abs(value) >= 1e15) return shown;
  const format = new Intl.NumberFormat("en", { minimumFractionDigits: most, maximumFractionDigits: most });
  return (one) => (one === null ? "" : format.format(one));
};
const grid = (headings, body) =>
  make("table", {}, make("thead", {}, make("tr", {}, ...headings.map((one) => make("th", { scope: "col" }, one)))), body);

const planned = (content, model, el) => {
  const { letter, norm, reference, low, high, curve, rows } = content;
  const steps = 300;
  const at = (step) => Number((low * (high / low) ** (step / steps)).toPrecision(3));
  const place = (budget) => Math.round((steps * Math.log(budget / low)) / Math.log(high / low));
  const times = (budget) => (reference / budget) ** (1 / norm);
  // What is computed from answers does not go with the budget alone: it is read between points of a curve.
  const between = (own, budget) => {
    const right = Math.max(1, Math.min(curve.length - 1, curve.findIndex((one) => one >= budget)));
    const [a, b] = [own[right - 1], own[right]];
    if (a === null || b === null) return NaN;
    if (a === 0 || b === 0) return Math.max(a, b);
    const part = Math.log(budget / curve[right - 1]) / Math.log(curve[right] / curve[right - 1]);
    return Math.exp(Math.log(a) + part * (Math.log(b) - Math.log(a)));
  };
  const margin = (row, budget) => (row.curve ? between(row.curve, budget) : times(budget) * row.half);

  const dial = make("input", { type: "range", min: 0, max: steps, step: 1, "aria-label": letter });
  const said = make("output");
  const body = make("tbody");
  const cells = rows.map((row) => {
    const own = [make("td"), make("td")];
    const pick = make("input", { type: "radio", name: "row", "aria-label": `Draw ${row.name}` });
    body.append(make("tr", {}, make("th", { scope: "row" }, make("label", {}, pick, " ", named(row.name))), make("td", {}, digits.format(row.answers)), ...own));
    return { row, own, pick };
  });
  const [width, height] = [460, 150];
  const line = shape("path", { class: "line" });
  const dot = shape("circle", { r: 5 });
  const marks = shape("g", {});
  const chart = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" }, marks, line, dot);

  const draw = (budget) => {
    const { row } = cells.find((one) => one.pick.checked);
    const points = Array.from({ length: 61 }, (_, k) => low * (high / low) ** (k / 60)).map((one) => [one, margin(row, one)]);
    const known = points.filter(([, y]) => y > 0);
    const ys = known.map(([, y]) => Math.log(y));
    const [least, most] = [Math.min(...ys), Math.max(...ys)];
    const x = (one) => 60 + ((width - 80) * Math.log(one / low)) / Math.log(high / low);
    const y = (one) => 12 + (height - 44) * (most > least ? (most - Math.log(one)) / (most - least) : 0.5);
    line.setAttribute("d", known.map(([a, b], k) => `${k ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join(""));
    const now = margin(row, budget);
    dot.toggleAttribute("hidden", !(now > 0));
    if (now > 0) {
      dot.setAttribute("cx", x(budget));
      dot.setAttribute("cy", y(now));
    }
    const text = (set, words) => shape("text", set, words);
    marks.replaceChildren(
      ...(known.length ? [text({ x: 54, y: y(Math.exp(most)) + 4, "text-anchor": "end" }, `± ${shown(Math.exp(most))}`),
        text({ x: 54, y: y(Math.exp(least)) + 4, "text-anchor": "end" }, `± ${shown(Math.exp(least))}`)] : []),
      text({ x: 60, y: height - 8 }, `${letter} = ${shown(low)}`), text({ x: width - 20, y: height - 8, "text-anchor": "end" }, `${letter} = ${shown(high)}`),
    );
    chart.setAttribute("aria-label", `± at 95 % of ${row.name} from ${letter} = ${shown(low)} to ${shown(high)}; here ± ${shown(now)}`);
  };
  const show = () => {
    const budget = model.get("budget");
    said.textContent = `${letter} = ${budget}`;
    for (const { row, own } of cells) {
      own[0].textContent = shown(margin(row, budget));
      own[1].textContent = row.curve ? "–" : shown(times(budget) * row.error);
    }
    draw(budget);
  };
  dial.value = place(model.get("budget"));
  dial.addEventListener("input", () => {
    model.set("budget", at(Number(dial.value)));
    model.save_changes();
  });
  const follow = () => {
    if (at(Number(dial.value)) !== model.get("budget")) dial.value = place(model.get("budget"));
    show();
  };
  model.on("change:budget", follow);
  for (const { pick } of cells) pick.addEventListener("change", show);
  cells[0].pick.checked = true;
  el.append(make("div", { className: "dial" }, dial, said), grid(["Statement", "Answers", "± at 95 %", "Standard error"], body), chart);
  show();
  return () => model.off("change:budget", follow);
};

const released = (content, model, el) => {
  const { tables, more, confidence } = content;
  const choice = make("select", { "aria-label": "Table" }, ...tables.map((one, k) => make("option", { value: k }, one.title)));
  const words = make("input", { type: "search", placeholder: "rows with …", "aria-label": "Rows with these words" });
  const body = make("tbody");
  const note = make("p");
  const show = () => {
    const table = tables[Number(choice.value)];
    const wanted = words.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
    const rows = table.rows.filter(([name]) => wanted.every((one) => name.toLocaleLowerCase().includes(one)));
    const known = rows.filter(([, value]) => value !== null);
    const low = Math.min(0, ...known.map((row) => row[3]));
    const high = Math.max(0, ...known.map((row) => row[4]));
    const percent = (value) => `${((100 * (value - low)) / (high - low || 1)).toFixed(2)}%`;
    body.replaceChildren(...rows.map(([name, value, error, from, to]) => {
      const bar = shape("svg", { class: "bar", "aria-hidden": "true" });
      if (value !== null) {
        const size = `${((100 * Math.abs(value)) / (high - low || 1)).toFixed(2)}%`;
        bar.append(shape("rect", { x: percent(Math.min(0, value)), width: size, y: "25%", height: "50%" }),
          shape("line", { x1: percent(from), x2: percent(to), y1: "50%", y2: "50%" }));
      }
      const figures = value === null ? ["not determined", "", "", ""] : [value, error, from, to].map(meant(value, from, to));
      return make("tr", {}, make("th", { scope: "row" }, named(name)), make("td", {}, bar), ...figures.map((one) => make("td", {}, one)));
    }));
    note.textContent = [table.more ? `${digits.format(table.more)} more answers of this table are not shown.` : "",
      more ? `${digits.format(more)} more tables are not shown.` : ""].filter(Boolean).join(" ");
  };
  choice.addEventListener("change", show);
  words.addEventListener("input", show);
  choice.hidden = tables.length < 2;
  el.append(make("div", { className: "dial" }, choice, words),
    grid(["", "", "Answer", "Standard error", `${confidence} from`, "to"], body), note);
  show();
};

export default {
  render({ model, el }) {
    const content = model.get("content");
    el.classList.add("batchdp");
    el.append(make("p", { className: "title" }, named(content.title)));
    const ended = (content.rows ? planned : released)(content, model, el);
    const facts = Object.entries(content.facts).filter(([, fact]) => fact);
    el.append(make("details", {}, make("summary", {}, "What this is"),
      make("dl", {}, ...facts.flatMap(([label, fact]) => [make("dt", {}, label), make("dd", {}, named(fact))]))));
    return ended;
  },
};
