"use strict";
// The page is complete without this; with it, the table can be sorted and filtered, and the plot follows.
(() => {
  const body = document.querySelector("#table tbody");
  if (!body) return;
  const heads = [...document.querySelectorAll("#table thead th")];
  const form = document.querySelector(".filter");
  const input = document.querySelector("#filter");
  const shown = document.querySelector("#found");
  const order = new Intl.Collator(undefined, { numeric: true });
  const marks = new Map([...document.querySelectorAll("#answers .answers li")].map((mark) => [mark.dataset.row, mark]));
  const rows = [...body.rows].map((row) => ({
    row,
    mark: marks.get(row.dataset.row), // the plot may leave out the last ones of very many
    words: row.cells[0].textContent.toLocaleLowerCase(),
    keys: [...row.cells].map((cell, i) => (i ? Number(cell.dataset.value) : cell.textContent)),
  }));

  const arrange = (column, way) => {
    const sorted = [...rows].sort((a, b) => {
      const [x, y] = [a.keys[column], b.keys[column]];
      return way * (column ? x - y : order.compare(x, y));
    });
    body.append(...sorted.map((one) => one.row));
    for (const { mark } of sorted) mark?.parentNode.append(mark); // every plot by itself
  };

  const filter = () => {
    const words = input.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const one of rows) {
      const fits = words.every((word) => one.words.includes(word));
      one.row.hidden = !fits;
      if (one.mark) one.mark.hidden = !fits;
      count += fits;
    }
    shown.textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shown`;
  };

  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    button.disabled = false;
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      arrange(column, down ? -1 : 1);
    });
  });
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", filter);
  filter(); // a reloaded page keeps what was typed
})();
