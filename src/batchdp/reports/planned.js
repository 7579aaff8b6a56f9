"use strict";
// The page is complete without this; with it, the budget is a slider that every figure follows.
(() => {
  const form = document.querySelector(".dial");
  const dial = document.querySelector("#dial");
  const typed = document.querySelector("#typed");
  const { norm, reference, low, high, steps, left } = Object.fromEntries(
    Object.entries(form.dataset).map(([name, value]) => [name, Number(value)]),
  );
  const scaled = [...document.querySelectorAll("[data-at]")].map((cell) => [cell, Number(cell.dataset.at)]);
  const wanted = [...document.querySelectorAll("[data-needs]")].map((row) => [row, Number(row.dataset.needs)]);
  const chosen = document.querySelectorAll(".chosen");
  const over = document.querySelector(".over");
  const count = document.querySelector(".count");
  const year = document.querySelector(".year");
  const often = document.querySelector(".often");
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const shown = (value) =>
    value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e12) ? value.toExponential(3) : digits.format(value);

  // What is computed from answers does not go with the budget alone: its margins are read between points of a curve.
  const budgets = JSON.parse(form.dataset.curve).map(Math.log);
  const curved = [...document.querySelectorAll("[data-curve]:not(form)")].map((cell) => [cell, JSON.parse(cell.dataset.curve)]);
  const between = (curve, at) => {
    const right = Math.max(1, Math.min(budgets.length - 1, budgets.findIndex((one) => one >= at)));
    const [a, b] = [curve[right - 1], curve[right]];
    if (a === null || b === null) return NaN;
    if (a === 0 || b === 0) return Math.max(a, b);
    const part = (at - budgets[right - 1]) / (budgets[right] - budgets[right - 1]);
    return Math.exp(Math.log(a) + part * (Math.log(b) - Math.log(a)));
  };
  const rounded = (value) => (Number.isNaN(value) ? "–" : shown(Number(value.toPrecision(2))));

  const show = (budget) => {
    const times = (reference / budget) ** (1 / norm);
    for (const [cell, value] of scaled) cell.textContent = shown(times * value);
    for (const [cell, curve] of curved) cell.textContent = rounded(between(curve, Math.log(budget)));
    year.textContent = shown(12 * budget);
    if (often) often.textContent = Math.floor(left / budget).toLocaleString("en");
    let met = 0;
    for (const [row, needs] of wanted) {
      const enough = budget >= needs;
      row.className = enough ? "met" : "unmet";
      row.querySelector(".verdict").textContent = enough ? "yes" : "no";
      if (count && enough && count.closest("section").contains(row)) met += 1;
    }
    if (count) count.textContent = met;
    if (over) over.hidden = !(budget > left);
    for (const one of chosen) one.textContent = String(budget);
  };
  const at = (step) => Number((low * (high / low) ** (step / steps)).toPrecision(3));
  const place = (budget) => Math.round((steps * Math.log(budget / low)) / Math.log(high / low));
  let waiting = 0;
  const soon = (budget) => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => show(budget));
  };

  dial.addEventListener("input", () => {
    const budget = at(Number(dial.value));
    typed.value = budget;
    soon(budget);
  });
  typed.addEventListener("input", () => {
    const budget = Number(typed.value);
    if (!(budget > 0 && Number.isFinite(budget))) return;
    dial.value = place(budget);
    soon(budget);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;

  // ── A margin wanted of each statement: the least budget that gives it ──

  const least = (row, goal) => {
    const flat = row.querySelector("[data-at]");
    if (flat) return reference * (Number(flat.dataset.at) / goal) ** norm;
    const curve = JSON.parse(row.querySelector("[data-curve]").dataset.curve);
    for (let step = 0; step <= 400; step++) {
      const at = budgets[0] + (step / 400) * (budgets.at(-1) - budgets[0]);
      if (between(curve, at) <= goal) return Math.exp(at);
    }
    return NaN;
  };
  const up = (value) => {
    const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
    return Number((Math.ceil(value / unit - 1e-9) * unit).toPrecision(3));
  };
  const hint = document.querySelector(".hint");
  const first = hint.textContent;
  const wishes = [...document.querySelectorAll(".asked tbody tr")];
  const weigh = () => {
    let [most, wanting, beyond] = [0, 0, 0];
    for (const row of wishes) {
      const [goal, cell] = [Number(row.querySelector(".wish input").value), row.querySelector(".needs")];
      const needs = goal > 0 ? up(least(row, goal)) : NaN;
      cell.textContent = Number.isNaN(needs) ? (goal > 0 ? "more" : "") : shown(needs);
      wanting += goal > 0;
      beyond += goal > 0 && Number.isNaN(needs);
      if (needs > most) most = needs;
    }
    const letter = document.querySelector('label[for="typed"]').textContent.trim();
    if (wanting === 0) hint.textContent = first;
    else if (beyond) hint.textContent = "Some margins need more than the slider reaches.";
    else hint.textContent = `All that is wanted is had from ${letter} ${shown(most)} on${most > left ? ", which is more than the ledger has left" : ""}.`;
    if (wanting && !beyond && most > 0) {
      const move = document.createElement("button");
      Object.assign(move, { type: "button", className: "more", textContent: `Go to ${letter} ${shown(most)}` });
      move.addEventListener("click", () => {
        typed.value = most;
        typed.dispatchEvent(new Event("input"));
      });
      hint.append(" ", move);
    }
  };
  for (const one of document.querySelectorAll(".wish, .hint")) one.hidden = false;
  for (const row of wishes) row.querySelector(".wish input").addEventListener("input", weigh);
  weigh();

  const search = document.querySelector(".filter");
  const input = document.querySelector("#filter");
  const found = document.querySelector("#found");
  const rows = [...document.querySelectorAll("#table tbody tr")].map((row) => [
    row,
    row.cells[0].textContent.toLocaleLowerCase(),
  ]);
  input.addEventListener("input", () => {
    const words = input.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
    let fitting = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      fitting += !row.hidden;
    }
    found.textContent = `${fitting.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
  });
  search.addEventListener("submit", (event) => event.preventDefault());
  search.hidden = false;
})();
