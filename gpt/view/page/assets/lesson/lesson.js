// @ts-check
// A lesson to teach from: one step at a time, results to guess, numbers to change.

import { bytes } from "../numbers.js";
import { entered, judged, shown } from "./guess.js";
import { evaluate, nested } from "./rules.js";

/** A table. base64, stored: Python's numbers; values: today's; known: the places of shown results.
 * @typedef {{shape: number[], digits: number, rule: import("./rules.js").Rule, base64: string,
 * uses: Record<string, number>, stored: Float64Array, values: number[], known: Set<number>}} Table */
/** A cell of a table in a step.
 * @typedef {{table: Table, at: number, result: boolean, element: HTMLElement, name: string}} Cell */

const WITHIN = 1e-7; // differences from Python's numbers, relative to the largest one above 1
const LARGEST = 1000; // of the numbers that one may enter

/** @type {(id: string) => any} */
const part = (id) => document.getElementById(id);
/** @type {(tag: string, properties: Record<string, any>) => any} */
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
/** @type {{tables: Record<string, Table>, answers: boolean, start: number}} */
const { tables, answers, start } = JSON.parse(part("data").textContent);
const lessons = [...document.querySelectorAll("article")];
const steps = [...document.querySelectorAll("section")];
const addresses = lessons.flatMap((lesson) =>
  [...lesson.querySelectorAll("section")].map((_, n) => `${lesson.dataset.lesson}/${n + 1}`)
);
let here = start - 1; // the step that is shown
/** @type {Cell[]} */
const cells = [];

/** The numbers that a table's rule gives. @param {Table} table @param {"stored" | "values"} from */
function computed(table, from) {
  const found = evaluate(table.rule, (key) => {
    const used = tables[table.uses[key]];
    return nested([...used[from]], used.shape);
  });
  return [found].flat(Infinity);
}

/** The largest difference of a rule's numbers from Python's, relative to the largest one above 1.
 * @param {Table} table */
function difference(table) {
  const { stored } = table;
  const found = computed(table, "stored");
  if (found.length !== stored.length) throw Error("shapes differ");
  const apart = found.map((x, n) => Object.is(x, stored[n]) ? 0 : Math.abs(x - stored[n]));
  return Math.max(...apart) / Math.max(1, ...stored.map(Math.abs).filter(Number.isFinite));
}

/** Computes every rule from Python's numbers; numbers can be changed if all agree. */
function prove() {
  const rules = Object.values(tables).filter(({ rule }) => rule);
  let largest = NaN;
  try {
    largest = Math.max(0, ...rules.map(difference));
  } catch { /* a rule that cannot be computed has other numbers */ }
  const right = part("alarm").hidden = largest <= WITHIN;
  const [found, within] = [largest, WITHIN].map((each) => each.toExponential(0).replace("-", "−"));
  part("proof").textContent = rules.length && right
    ? `✓ This page computed ${rules.length} rules, which give Python’s numbers: largest difference ${found}, allowed ${within}.`
    : "";
  return right;
}

/** Shows a cell: a field, a number, or a button in place of a hidden result. @param {Cell} cell */
function draw(cell) {
  const { table, at, element, name } = cell;
  const text = shown(table.values[at], table.digits);
  element.classList.toggle("changed", text !== shown(table.stored[at], table.digits));
  if (cell.result && !table.known.has(at)) {
    const ariaLabel = `${name}: hidden, guess it`;
    element.replaceChildren(
      make("button", { ariaLabel, textContent: "?", onclick: () => ask(cell) }),
    );
  } else if (table.rule || !editable) element.textContent = text;
  else {
    const field = element.querySelector("input") ?? makeField(element, { ariaLabel: name });
    field.onchange = () => edit(cell, field);
    if (!field.ariaInvalid) field.value = text; // a wrong number stays, to be corrected
    field.size = Math.max(text.length, table.digits + 2);
  }
}

/** A field in place of a cell's text. @param {Element} element @param {Record<string, any>} properties */
function makeField(element, properties) {
  const field = make("input", { inputMode: "decimal", autocomplete: "off", ...properties });
  element.replaceChildren(field);
  return field;
}

/** Asks for a guess in place of a hidden result. @param {Cell} cell */
function ask(cell) {
  const { table, at, element, name } = cell;
  const size = table.digits + 3;
  const field = makeField(element, { ariaLabel: `guess: ${name}`, className: "guess", size });
  field.onblur = () => field.value.trim() || draw(cell);
  field.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") draw(cell);
    if (event.key !== "Enter") return;
    event.preventDefault(); // or it would press the button that gets the focus
    const [right, message] = judged(field.value, table.values[at], table.digits);
    field.ariaInvalid = String(!right);
    if (!right) return say(message), field.select();
    table.known.add(at);
    element.classList.add("found");
    draw(cell);
    /** @type {any} */ (element.closest("section")?.querySelector("td button"))?.focus();
    offer(message);
  };
  field.focus();
}

/** Takes a changed number. @param {Cell} cell @param {HTMLInputElement} field */
function edit({ table, at, name }, field) {
  const value = entered(field.value);
  const right = Math.abs(value) <= LARGEST;
  field.ariaInvalid = right ? null : "true";
  const kept = `${name} stays ${shown(table.values[at], table.digits)}`;
  say(right ? "" : `“${field.value}” is not a number from −1,000 to 1,000; ${kept}.`);
  if (!right) return;
  table.values[at] = value;
  recompute();
}

/** Computes all that follows from changed numbers, and shows it. */
function recompute() {
  const changed = new Set();
  for (const [number, table] of Object.entries(tables)) {
    if (table.rule) {
      const follows = Object.values(table.uses).some((each) => changed.has(tables[each]));
      table.values = follows ? computed(table, "values") : [...table.stored];
    }
    const moved = table.values.some((value, n) => !Object.is(value, table.stored[n]));
    if (moved) changed.add(table);
    for (const figure of document.querySelectorAll(`[data-table="${number}"]`)) {
      figure.querySelector("mark")?.remove();
      const textContent = table.rule ? "recomputed" : "changed by you";
      if (moved) figure.querySelector("figcaption")?.append(make("mark", { textContent }));
    }
  }
  part("changed").hidden = !changed.size;
  for (const cell of cells) if (!cell.element.querySelector(".guess")) draw(cell);
}

const say = (/** @type {string} */ text) => part("said").textContent = text;
const all = () => part("all").ariaPressed === "true";

/** The cells of results in what is shown, and whether one is hidden. */
function results() {
  const found = cells.filter((cell) => cell.result && !cell.element.closest("[hidden]"));
  return { found, hidden: found.some(({ table, at }) => !table.known.has(at)) };
}

/** Says what the button for results would do. @param {string} text that is said besides */
function offer(text = "") {
  const { found, hidden } = results();
  part("show").hidden = !found.length || answers;
  part("show").textContent = hidden ? "Show results" : "Hide results";
  say(text || (hidden ? "Choose a “?” to guess its number." : ""));
}

/** Shows all results of the step, or hides them again. */
function toggleResults() {
  const { found, hidden } = results();
  for (const cell of answers ? [] : found) {
    cell.table.known[hidden ? "add" : "delete"](cell.at);
    cell.element.classList.remove("found");
    draw(cell);
  }
  offer();
}

/** Goes to a step, if there is one. @param {number} step */
function go(step) {
  if (!steps[step]) return;
  here = step;
  location.hash = addresses[here];
  render();
  if (all()) return steps[here].scrollIntoView();
  scrollTo(0, 0);
  steps[here].querySelector("h2")?.focus({ preventScroll: true });
}

/** Shows the step, its place and the list of its lesson's steps. */
function render() {
  const lesson = steps[here].parentElement;
  const own = steps.filter((each) => each.parentElement === lesson);
  const first = steps.indexOf(own[0]);
  const titles = own.map((each) => each.querySelector("h2")?.textContent);
  for (const each of lessons) each.hidden = each !== lesson;
  steps.forEach((each, n) => each.hidden = !all() && n !== here);
  part("lesson").value = first;
  part("place").textContent = `Step ${here - first + 1} of ${own.length}`;
  part("steps").replaceChildren(...titles.map((title, n) => {
    const properties = { textContent: `${n + 1}. ${title}`, onclick: () => go(first + n) };
    const ariaCurrent = first + n === here ? "step" : null;
    const item = make("li", {});
    item.append(make("button", { ...properties, ariaCurrent }));
    return item;
  }));
  part("progress").firstElementChild.style.width = `${100 * (here - first + 1) / own.length}%`;
  document.body.toggleAttribute("data-all", all());
  part("previous").hidden = part("next").hidden = all();
  part("previous").disabled = !here;
  part("next").disabled = here === steps.length - 1;
  document.title = `${titles[here - first]} · ${lesson?.dataset.lesson} · gptx lesson`;
  offer();
}

/** Goes to the step that the address names, if there is one. */
function follow() {
  const named = location.hash.slice(1);
  const found = addresses.findIndex((each) => each === named || each === `${named}/1`);
  if (found >= 0) here = found;
  render();
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {Element} */ (event.target);
  const busy = target.matches?.("input, select, .scroll"); // .scroll: moves a wide table
  if (event.ctrlKey || event.altKey || event.metaKey || busy) return;
  if (event.key === " " && target.closest?.("button, summary")) return;
  const space = event.shiftKey ? -1 : 1;
  const by = { ArrowLeft: -1, PageUp: -1, ArrowRight: 1, PageDown: 1, " ": space }[event.key];
  if (event.key === "s") toggleResults();
  else if (by && !all()) go(here + by);
  else return;
  event.preventDefault();
}

/** Light or dark. @param {boolean} dark */
function colour(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  part("theme").textContent = dark ? "○ light" : "● dark";
  part("theme").onclick = () => colour(!dark);
}

for (const table of Object.values(tables)) {
  table.stored = new Float64Array(bytes(table.base64).buffer);
  table.values = [...table.stored];
  table.known = new Set(answers ? table.stored.keys() : []);
}
const editable = prove();
for (const element of document.querySelectorAll("td")) {
  const figure = element.closest("figure");
  const table = tables[figure?.dataset.table ?? ""];
  if (!table || !element.dataset.at) continue;
  const row = element.parentElement?.firstElementChild?.textContent;
  const head = element.closest("table")?.rows[0].cells[element.cellIndex].textContent;
  const name = [figure?.ariaLabel, row, head].filter(Boolean).join(", ");
  const result = figure?.className === "result";
  cells.push({ table, at: Number(element.dataset.at), result, element, name });
}
cells.forEach(draw);
for (const { dataset: { lesson } } of lessons) {
  part("lesson").add(new Option(lesson, String(addresses.indexOf(`${lesson}/1`))));
}
part("lesson").parentElement.hidden = lessons.length === 1;
part("lesson").onchange = () => go(Number(part("lesson").value));
part("steps").onclick = () => part("list").open = false;
part("previous").onclick = () => go(here - 1);
part("next").onclick = () => go(here + 1);
part("show").onclick = toggleResults;
part("all").onclick = () => {
  part("all").ariaPressed = String(!all());
  render();
};
part("back").onclick = () => {
  for (const table of Object.values(tables)) table.values = [...table.stored];
  for (const field of document.querySelectorAll("td input")) field.ariaInvalid = null;
  recompute();
};
const system = matchMedia("(prefers-color-scheme: dark)");
colour(system.matches);
system.onchange = () => colour(system.matches);
addEventListener("hashchange", () => location.hash.slice(1) === addresses[here] || follow());
addEventListener("keydown", onKey);
for (const each of document.querySelectorAll("header, #bar")) each.removeAttribute("hidden");
follow();
location.replace(`#${addresses[here]}`);
