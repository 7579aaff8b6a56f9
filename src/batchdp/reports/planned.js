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
  const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const shown = (value) =>
    value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e12) ? value.toExponential(3) : digits.format(value);

  const show = (budget) => {
    const times = (reference / budget) ** (1 / norm);
    for (const [cell, value] of scaled) cell.textContent = shown(times * value);
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

  const search = document.querySelector(".filter");
  const input = document.querySelector("#filter");
  const found = document.querySelector("#shown");
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
