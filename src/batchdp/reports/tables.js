"use strict";
// The list of tables, and each of them drawn when it is opened: bars for one column, a map for two, choices for more.
(() => {
  const home = document.querySelector("#tables-view");
  if (!home) return;
  const { release, folder } = home.dataset;
  const MOST = { listed: 100, rows: 100, moreRows: 500, column: 20000, side: 500, options: 2000, written: 400, across: 14, parts: 64 };
  const FIELDS = ["title", "columns", "axes", "sizes", "answers", "typical", "part", "word", "each", "stride", "step", "decimals", "error", "half", "beside"];
  const HOLE = -(2 ** 31);

  const make = (tag, set = {}, ...inner) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(set)) name in made ? (made[name] = value) : made.setAttribute(name, value);
    made.append(...inner);
    return made;
  };
  const named = (text) => make("bdi", { dir: "auto" }, text); // of any direction, whatever stands beside it
  const count = (number) => number.toLocaleString("en");
  const figure = (decimals) => {
    const format = new Intl.NumberFormat("en", { minimumFractionDigits: decimals ?? 0, maximumFractionDigits: decimals ?? 0 });
    const text = (value) => (decimals === null || Math.abs(value) >= 1e15 ? Number(value.toPrecision(4)).toString() : format.format(value));
    return (value) => (Number(text(value).replaceAll(",", "")) === 0 ? text(0) : text(value).replace("-", "−"));
  };
  const words = (text) => text.toLocaleLowerCase().split(/\s+/).filter(Boolean);

  // ── What was packed: in this page, or in scripts beside it that call `batchdp` ──

  const inner = document.querySelector("#tables-data");
  const held = new Map(inner ? Object.entries(JSON.parse(inner.textContent)) : []);
  const asked = new Map();
  window.batchdp = (from, key, content) => {
    if (from === release) held.set(key, content);
  };
  const load = (key) => {
    if (held.has(key)) return Promise.resolve(held.get(key));
    if (!asked.has(key)) {
      const coming = new Promise((done, failed) => {
        const script = make("script", { src: `${folder}/${key}.js` });
        const ended = (problem) => {
          script.remove();
          asked.delete(key);
          problem ? failed(new Error(problem)) : done(held.get(key));
        };
        script.onload = () => ended(held.has(key) ? "" : "The files beside this page belong to another release; write the page again.");
        script.onerror = () => ended(`${decodeURIComponent(folder)}/${key}.js cannot be read; keep that folder beside the page.`);
        document.head.append(script);
      });
      asked.set(key, coming);
    }
    return asked.get(key);
  };
  const decoded = new Map();
  const part = async (number) => {
    if (!decoded.has(number)) {
      const key = `part-${number}`;
      const text = atob(await load(key));
      const bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
      decoded.set(number, bytes.buffer);
      if (folder) held.delete(key);
      if (decoded.size > MOST.parts) decoded.delete(decoded.keys().next().value);
    }
    return decoded.get(number);
  };
  const read = async (table, cells) => {
    const needed = new Map();
    for (const cell of cells) needed.set(table.part + Math.floor(cell / table.each), null);
    await Promise.all([...needed.keys()].map(async (number) => {
      const buffer = await part(number);
      needed.set(number, [new Int32Array(buffer), new Float32Array(buffer)]);
    }));
    const [values, errors, halves, beside] = [0, 1, 2, 3].map(() => new Float64Array(cells.length));
    const own = table.stride - table.beside; // words of an answer without what is beside it
    cells.forEach((cell, i) => {
      const [whole, floats] = needed.get(table.part + Math.floor(cell / table.each));
      const at = table.word + (cell % table.each) * table.stride;
      values[i] = whole[at] === HOLE ? NaN : whole[at] * table.step;
      errors[i] = own > 1 ? floats[at + 1] : table.error;
      halves[i] = own > 1 ? floats[at + 2] : table.half;
      if (table.beside) beside[i] = whole[at + own] * table.step;
    });
    return { values, errors, halves, beside };
  };
  const labelled = (axis) => (typeof axis === "number" ? String : (i) => axis[i]);

  // ── The answers of a slice: rows with bars and intervals, sorted and filtered ──

  const SVG = "http://www.w3.org/2000/svg";
  const shape = (tag, set) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(set)) made.setAttribute(name, value);
    return made;
  };
  const bar = (value, half, place) => {
    const svg = shape("svg", { "aria-hidden": "true" });
    const [zero, end] = [place(0), place(value)];
    const percent = (share) => `${(100 * share).toFixed(3)}%`;
    svg.append(
      shape("rect", { class: value < 0 ? "below" : "bar", x: percent(Math.min(zero, end)), width: percent(Math.abs(end - zero)), y: "22%", height: "56%" }),
      shape("line", { class: "interval", x1: percent(place(value - half)), x2: percent(place(value + half)), y1: "50%", y2: "50%" }),
      shape("line", { class: "zero", x1: percent(zero), x2: percent(zero), y1: "0", y2: "100%" }),
    );
    return svg;
  };

  const list = (table, confidence) => {
    const show = figure(table.decimals);
    const input = make("input", { type: "search", autocomplete: "off", spellcheck: false, placeholder: "any words" });
    const shown = make("output", { "aria-live": "polite" });
    const form = make("form", { className: "filter", role: "search" }, make("label", {}, "Show rows with ", input), shown);
    const head = make("tr");
    const body = make("tbody");
    const caption = make("caption");
    const box = make("div", { className: "box", tabIndex: 0, role: "region", "aria-label": `Answers of ${table.title}` },
      make("table", { className: "answers-of", "data-figures": table.beside ? 4 : 3 }, caption, make("thead", {}, head), body));
    const more = make("button", { type: "button", className: "more" });
    let [slice, order, column, way, visible] = [null, [], null, 1, MOST.rows];
    const keys = [];

    const sorted = () => {
      const found = words(input.value);
      order = [];
      for (let i = 0; i < slice.values.length; i++) {
        if (Number.isNaN(slice.values[i])) continue;
        if (found.length === 0 || found.every((word) => slice.text(i).toLocaleLowerCase().includes(word))) order.push(i);
      }
      if (column !== null) order.sort((a, b) => way * (keys[column](a) - keys[column](b)) || a - b);
      draw();
    };
    const draw = () => {
      let [low, high] = [0, 0];
      for (const i of order) {
        low = Math.min(low, slice.values[i] - slice.halves[i]);
        high = Math.max(high, slice.values[i] + slice.halves[i]);
      }
      const place = (value) => (high > low ? (value - low) / (high - low) : 0);
      const [focus, rows] = [document.activeElement === more, order.slice(0, visible)];
      body.replaceChildren(...rows.map((i) => {
        const [value, error, half] = [slice.values[i], slice.errors[i], slice.halves[i]];
        const names = slice.names(i);
        const figures = [value, error, value - half, value + half, ...(table.beside ? [slice.beside[i]] : [])];
        const cells = figures.map((one, at) => make("td", { className: at === 1 ? "spread" : "", "data-value": one }, show(one)));
        const ways = names.map((name, at) => make(at ? "td" : "th", at ? { className: "text" } : { scope: "row" }, named(name)));
        return make("tr", {}, ...ways, make("td", { className: "bars" }, bar(value, half, place)), ...cells);
      }));
      const all = slice.values.length - slice.holes;
      shown.textContent = `${count(order.length)} of ${count(all)} shown`;
      form.hidden = all < 8;
      more.hidden = order.length <= visible;
      more.textContent = `Show ${count(Math.min(MOST.moreRows, order.length - visible))} more of ${count(order.length)} rows`;
      if (focus && more.hidden) box.focus();
    };
    const headings = () => {
      const own = slice.headings.map((name, at) => [name, (i) => slice.position(i)[at], at ? "text" : ""]);
      const figures = [["", null, "bars"], ["Answer", (i) => slice.values[i]], ["Standard error", (i) => slice.errors[i], "spread"],
        ["Low", (i) => slice.values[i] - slice.halves[i]], ["High", (i) => slice.values[i] + slice.halves[i]],
        ...(table.beside ? [[home.dataset.beside.replace(/^./, (first) => first.toUpperCase()), (i) => slice.beside[i]]] : [])];
      keys.length = 0;
      head.closest("table").dataset.groups = own.length;
      head.replaceChildren(...[...own, ...figures].map(([name, key, kind], at) => {
        keys.push(key);
        if (!key) return make("td", { className: kind });
        const button = make("button", { type: "button" }, named(name));
        const th = make("th", { scope: "col", className: kind ?? "", "aria-sort": at === column ? (way > 0 ? "ascending" : "descending") : "none" }, button);
        button.addEventListener("click", () => {
          way = column === at ? -way : 1;
          column = at;
          for (const other of head.children) other.setAttribute("aria-sort", "none");
          th.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
          visible = MOST.rows;
          sorted();
        });
        return th;
      }));
    };
    form.addEventListener("submit", (event) => event.preventDefault());
    input.addEventListener("input", () => { visible = MOST.rows; sorted(); });
    more.addEventListener("click", () => { visible += MOST.moreRows; draw(); });
    return {
      parts: [form, box, more],
      update: (next) => {
        if (slice && slice.headings.length !== next.headings.length) column = null;
        slice = next;
        visible = MOST.rows;
        caption.replaceChildren(...(slice.where.length ? ["Where ", named(slice.where.join(", ")), ". "] : []), `Answers, their standard errors and ${confidence} intervals`);
        headings();
        sorted();
      },
    };
  };

  // ── The map of two columns ──

  const map = (table, slice) => {
    const [down, across] = slice.lengths;
    const show = figure(table.decimals);
    const largest = slice.values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0) || 1;
    const share = (value) => Math.sqrt(Math.abs(value) / largest);
    const told = make("output", { className: "told", "aria-live": "polite" });
    const tell = (i) => {
      const value = slice.values[i];
      told.replaceChildren(named(slice.names(i).join(", ")), Number.isNaN(value) ? ": not asked" : `: ${show(value)} ± ${show(slice.halves[i])}${table.beside ? `, ${home.dataset.beside} ${show(slice.beside[i])}` : ""}`);
    };
    const small = across <= MOST.across && down * across <= MOST.written;
    const drawn = small ? written(slice, show, share, tell) : painted(slice, share, tell);
    const legend = make("figcaption", {}, "Deeper means larger, by the square root, up to ", show(largest), "; orange is below 0. ", told);
    told.textContent = small ? "" : "Point at a cell, or move with the arrow keys.";
    return make("figure", { className: "map" }, make("div", { className: "box", ...(small ? { tabIndex: 0, role: "region", "aria-label": `Map of ${table.title}` } : {}) }, drawn), legend);
  };
  const written = (slice, show, share, tell) => {
    const [down, across] = slice.lengths;
    const head = make("tr", {}, make("th", { scope: "col" }, named(slice.headings[0]), " ↓ ", named(slice.headings[1]), " →"));
    for (let j = 0; j < across; j++) head.append(make("th", { scope: "col" }, named(slice.names(j)[1])));
    const body = make("tbody");
    for (let i = 0; i < down; i++) {
      const row = make("tr", {}, make("th", { scope: "row" }, named(slice.names(i * across)[0])));
      for (let j = 0; j < across; j++) {
        const at = i * across + j;
        const value = slice.values[at];
        const cell = make("td", {}, Number.isNaN(value) ? "" : show(value));
        if (!Number.isNaN(value)) cell.style.setProperty("--share", `${(55 * share(value)).toFixed(1)}%`);
        if (value < 0) cell.className = "less";
        cell.addEventListener("mouseenter", () => tell(at));
        row.append(cell);
      }
      body.append(row);
    }
    return make("table", { className: "heat" }, make("thead", {}, head), body);
  };
  const painted = (slice, share, tell) => {
    const [down, across] = slice.lengths;
    const canvas = make("canvas", { width: across, height: down, tabIndex: 0, role: "img", "aria-label": `Map: ${slice.headings.join(" down, ")} across; arrow keys move from cell to cell` });
    const image = new ImageData(across, down);
    slice.values.forEach((value, i) => {
      const colour = value < 0 ? [214, 98, 30] : [58, 112, 224];
      image.data.set([...colour, Number.isNaN(value) ? 0 : Math.round(255 * share(value))], 4 * i);
    });
    canvas.getContext("2d").putImageData(image, 0, 0);
    const room = Math.max(120, Math.min(860, home.clientWidth - (home.clientWidth < 600 ? 70 : 110)));
    const wide = Math.min(room, across * Math.max(1, Math.min(28, Math.floor(room / across), Math.max(2, Math.floor(560 / down)))));
    const high = (wide * down) / across;
    const cursor = make("span", { className: "cursor", hidden: true });
    let at = 0;
    const go = (i) => {
      at = i;
      cursor.hidden = false;
      Object.assign(cursor.style, {
        left: `${(100 * (i % across)) / across}%`, top: `${(100 * Math.floor(i / across)) / down}%`, width: `${100 / across}%`, height: `${100 / down}%`,
      });
      tell(i);
    };
    const pointed = (event) => {
      const edge = canvas.getBoundingClientRect();
      const [x, y] = [(event.clientX - edge.x) / edge.width, (event.clientY - edge.y) / edge.height].map((one) => Math.max(0, Math.min(0.999999, one)));
      go(Math.floor(y * down) * across + Math.floor(x * across));
    };
    canvas.addEventListener("pointermove", pointed);
    canvas.addEventListener("pointerdown", pointed);
    canvas.addEventListener("focus", () => go(at));
    canvas.addEventListener("keydown", (event) => {
      const [i, j] = [Math.floor(at / across), at % across];
      const moves = { ArrowUp: [i - 1, j], ArrowDown: [i + 1, j], ArrowLeft: [i, j - 1], ArrowRight: [i, j + 1], Home: [i, 0], End: [i, across - 1] };
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const [row, cell] = moves[event.key];
      go(Math.max(0, Math.min(down - 1, row)) * across + Math.max(0, Math.min(across - 1, cell)));
    });
    const ticks = (axis, size, room) => {
      const step = Math.max(1, Math.ceil(size / Math.max(1, room)));
      const marks = [];
      for (let i = 0; i < size; i += step) {
        const mark = make("span", {}, named(slice.names(axis ? i : i * across)[axis]));
        mark.style.setProperty(axis ? "left" : "top", `${(100 * (i + 0.5)) / size}%`);
        marks.push(mark);
      }
      return make("div", { className: axis ? "ticks right" : "ticks down", "aria-hidden": "true" }, ...marks);
    };
    const field = make("div", { className: "field" }, canvas, cursor);
    field.style.setProperty("aspect-ratio", `${across} / ${down}`);
    const head = make("div", { className: "over", "aria-hidden": "true" }, named(slice.headings[1]), " →");
    const lead = make("div", { className: "over", "aria-hidden": "true" }, named(slice.headings[0]), " ↓");
    const chart = make("div", { className: "chart" }, lead, make("div", {}, head, ticks(1, across, Math.floor(wide / 56))), ticks(0, down, Math.floor(high / 18)), field);
    chart.style.setProperty("--wide", `${wide}px`);
    return chart;
  };

  // ── One table: which columns go down and across, and where the others are held ──

  const chooser = (label, size, name, current, change) => {
    const id = `choice-${chooser.made = (chooser.made ?? 0) + 1}`;
    let field;
    if (size <= MOST.options) {
      field = make("select", { id }, ...Array.from({ length: size }, (_, i) => make("option", { value: i }, name(i))));
      field.value = current;
    } else field = make("input", { id, type: "number", min: 0, max: size - 1, value: current });
    field.addEventListener("change", () => change(Math.max(0, Math.min(size - 1, Math.floor(Number(field.value) || 0)))));
    return make("span", { className: "choice" }, make("label", { htmlFor: id }, named(label)), field);
  };

  const view = (table, axes) => {
    const n = table.columns.length;
    const names = axes.map(labelled);
    const state = { ways: n > 1 ? [n - 2, n - 1] : n ? [0] : [], at: table.sizes.map(() => 0) };
    const strides = table.sizes.map((_, axis) => table.sizes.slice(axis + 1).reduce((a, b) => a * b, 1));
    const controls = make("div", { className: "controls" });
    const figureBox = make("div");
    const answers = list(table, home.dataset.confidence);
    const body = make("div", { className: "opened" }, controls, figureBox, ...answers.parts);
    let turn = 0;

    const most = () => (n > 1 ? MOST.side : MOST.column);
    const control = () => {
      const found = [];
      const way = (label, place) => chooser(label, n, (i) => table.columns[i], state.ways[place], (axis) => {
        const other = state.ways[1 - place];
        if (axis === other) state.ways = [state.ways[1], state.ways[0]];
        else state.ways[place] = axis;
        again();
      });
      if (n > 1) found.push(way("Down", 0), way("Across", 1));
      table.columns.forEach((column, axis) => {
        const along = state.ways.includes(axis);
        if (along && table.sizes[axis] <= most()) return;
        const label = along ? `${column}, from row` : column;
        const size = table.sizes[axis];
        const steps = along ? Math.ceil(size / most()) : size;
        const name = along ? (i) => names[axis](i * most()) : names[axis];
        found.push(chooser(label, steps, name, along ? Math.floor(state.at[axis] / most()) : state.at[axis], (i) => {
          state.at[axis] = along ? i * most() : i;
          draw();
        }));
      });
      controls.replaceChildren(...found);
      controls.hidden = found.length === 0;
    };
    const again = () => {
      table.sizes.forEach((size, axis) => { // a window starts at a whole step
        if (state.ways.includes(axis)) state.at[axis] = size > most() ? Math.floor(state.at[axis] / most()) * most() : 0;
      });
      const focused = [...controls.querySelectorAll("select, input")].indexOf(document.activeElement);
      control();
      controls.querySelectorAll("select, input")[focused]?.focus();
      draw();
    };
    const draw = async () => {
      const own = ++turn;
      const lengths = state.ways.map((axis) => Math.min(most(), table.sizes[axis] - state.at[axis]));
      const total = lengths.reduce((a, b) => a * b, 1);
      const base = state.at.reduce((sum, i, axis) => sum + i * strides[axis], 0);
      const inside = (i) => (lengths.length > 1 ? [Math.floor(i / lengths[1]), i % lengths[1]] : lengths.length ? [i] : []);
      const cells = Array.from({ length: total }, (_, i) => inside(i).reduce((sum, k, place) => sum + k * strides[state.ways[place]], base));
      const waiting = setTimeout(() => body.setAttribute("aria-busy", "true"), 300);
      try {
        const figures = await read(table, cells);
        if (own !== turn) return;
        const position = inside;
        const name = (i) => inside(i).map((k, place) => names[state.ways[place]](k + state.at[state.ways[place]]));
        const ways = [...state.ways];
        const slice = {
          ...figures, lengths, position,
          names: n ? name : () => [table.title],
          text: (i) => (n ? name(i) : [table.title]).join(" "),
          headings: n ? ways.map((axis) => table.columns[axis]) : ["Query"],
          holes: figures.values.reduce((sum, value) => sum + Number.isNaN(value), 0),
          where: table.columns.flatMap((column, axis) => (ways.includes(axis) ? [] : [`${column} = ${names[axis](state.at[axis])}`])),
        };
        figureBox.replaceChildren(...(n > 1 ? [map(table, slice)] : []));
        answers.update(slice);
      } catch (problem) {
        figureBox.replaceChildren(make("p", { className: "problem", role: "alert" }, problem.message));
      } finally {
        clearTimeout(waiting);
        if (own === turn) body.removeAttribute("aria-busy");
      }
    };
    control();
    return { body, ready: draw() };
  };

  // ── The list ──

  const opened = async (details, table) => {
    if (details.dataset.drawn) return;
    details.dataset.drawn = "coming";
    for (const old of details.querySelectorAll(".problem")) old.remove();
    try {
      const axes = await Promise.all(table.axes.map((axis) => load(`axis-${axis}`)));
      const { body, ready } = view(table, axes);
      details.append(body);
      await ready;
      details.dataset.drawn = "done";
    } catch (problem) {
      details.append(make("p", { className: "problem", role: "alert" }, problem.message));
      delete details.dataset.drawn;
    }
  };
  const items = new Map();
  const listen = (details, table) => details.addEventListener("toggle", () => details.open && opened(details, table));
  const item = (table) => {
    if (!items.has(table)) {
      const size = table.sizes.length > 1 ? `${table.sizes.map(count).join(" × ")}: ` : "";
      const about = `${size}${count(table.answers)} answer${table.answers === 1 ? "" : "s"}`;
      const error = make("span", { className: "error" }, `median standard error ${figure(table.decimals)(table.typical)}`);
      const details = make("details", {}, make("summary", {}, make("span", { className: "title" }, named(table.title)), make("span", { className: "about" }, about), error));
      listen(details, table);
      items.set(table, make("li", {}, details));
    }
    return items.get(table);
  };
  load("list").then((found) => {
    const tables = found.map((entry) => Object.fromEntries(FIELDS.map((name, i) => [name, entry[i]])));
    const texts = tables.map((table) => [table.title, ...table.columns].join(" ").toLocaleLowerCase());
    const place = home.querySelector("ol");
    const form = home.querySelector("form");
    const input = home.querySelector("input");
    const more = make("button", { type: "button", className: "more" });
    [...place.children].forEach((li, t) => { // what the page lists already stays: its rows are what is printed
      li.firstChild.open = false;
      listen(li.firstChild, tables[t]);
      items.set(tables[t], li);
    });
    let visible = MOST.listed;
    const draw = () => {
      const wanted = words(input.value);
      const fitting = tables.filter((_, t) => wanted.every((word) => texts[t].includes(word)));
      place.replaceChildren(...fitting.slice(0, visible).map(item));
      home.querySelector("form output").textContent = `${count(fitting.length)} of ${count(tables.length)} tables`;
      more.hidden = fitting.length <= visible;
      more.textContent = `Show ${count(Math.min(MOST.listed, fitting.length - visible))} more of ${count(fitting.length)} tables`;
    };
    place.after(more);
    more.addEventListener("click", () => { visible += MOST.listed; draw(); });
    input.addEventListener("input", () => { visible = MOST.listed; draw(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = tables.length < 4;
    draw();
    const first = tables.length <= 3 ? tables : [tables.find((table) => table.columns.length) ?? tables[0]];
    for (const table of first) {
      item(table).firstChild.open = true;
      opened(item(table).firstChild, table);
    }
  }).catch((problem) => home.prepend(make("p", { className: "problem", role: "alert" }, problem.message)));
})();
