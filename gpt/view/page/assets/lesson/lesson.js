// @ts-check
// A lesson to teach from: one step at a time, results to guess, numbers to change.

import { bytes } from "../numbers.js";
import { entered, judged, shown } from "./guess.js";
import { evaluate, nested } from "./rules.js";

/** A table in the page's data. @typedef {{shape: number[], base64: string, digits: number,
 * rule: string, uses: Record<string, number>}} TableRecord */
/** stored: Python's numbers; values: today's; known: the places of results that are not hidden.
 * @typedef {TableRecord & {stored: Float64Array, values: number[], known: Set<number>}} Table */
/** A cell of a table in a step. @typedef {{table: Table, at: number, result: boolean,
 * element: Element, name: string}} Cell */

const WITHIN = 1e-7; // differences from Python's numbers, relative to the largest one above 1
const LARGEST = 1000; // of the numbers that one may enter

/** @type {{tables: Record<string, TableRecord>, answers: boolean, start: number}} */
const data = JSON.parse(part("data").textContent ?? "");
const lessons = [...document.querySelectorAll("article")];
/** @type {Map<number, Table>} */
const tables = new Map();
/** @type {Map<Element, Cell>} */
const cells = new Map();
let here = { lesson: 0, step: 0 };

/** @param {string} id @returns {any} */
function part(id) {
  return document.getElementById(id);
}

/** @param {string} tag @param {Record<string, string>} attributes @param {string} text @returns {any} */
function make(tag, attributes, text = "") {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

/** The numbers that a table's rule gives. @param {Table} table @param {"stored" | "values"} from */
function computed(table, from) {
  const found = evaluate(table.rule, (key) => {
    const used = tables.get(table.uses[key]);
    if (!used) throw Error(`no table ${key}`);
    return nested([...used[from]], used.shape);
  });
  return [found].flat(Infinity);
}

/** The largest difference of two lists, relative to the largest stored number above 1.
 * @param {number[]} found @param {Float64Array} stored */
function difference(found, stored) {
  if (found.length !== stored.length) return Infinity;
  const scale = Math.max(1, ...stored.map(Math.abs).filter(Number.isFinite));
  const apart = found.map((value, n) =>
    Object.is(value, stored[n]) ? 0 : Math.abs(value - stored[n])
  );
  return Math.max(...apart.map((value) => Number.isNaN(value) ? Infinity : value)) / scale;
}

/** Computes every rule from Python's numbers; numbers can be changed if all agree. */
function prove() {
  const rules = [...tables.values()].filter(({ rule }) => rule);
  const apart = rules.map((table) => {
    try {
      return difference(computed(table, "stored"), table.stored);
    } catch {
      return Infinity;
    }
  });
  const largest = Math.max(0, ...apart);
  part("alarm").hidden = largest <= WITHIN;
  const [found, within] = [largest, WITHIN].map((each) => each.toExponential(0).replace("-", "−"));
  if (rules.length && largest <= WITHIN) {
    part("proof").textContent =
      `✓ This page computed ${rules.length} rules, which give Python’s numbers: largest difference ${found}, allowed ${within}.`;
  }
  return largest <= WITHIN;
}

/** Shows a cell: a field, a number, or a button in place of a hidden result. @param {Cell} cell */
function draw({ table, at, result, element, name }) {
  const text = shown(table.values[at], table.digits);
  element.classList.toggle("changed", text !== shown(table.stored[at], table.digits));
  if (result && !table.known.has(at)) {
    const button = make("button", { "aria-label": `${name}: hidden, guess it` }, "?");
    button.addEventListener("click", () => ask(element));
    element.replaceChildren(button);
  } else if (table.rule || !editable) element.textContent = text;
  else {
    const field = element.querySelector("input") ?? makeField(element, name);
    if (!field.onchange) field.onchange = () => edit(element, field);
    if (!field.ariaInvalid) field.value = text; // a wrong number stays, to be corrected
    field.size = Math.max(text.length, table.digits + 2);
  }
}

/** A field in place of a cell's text. @param {Element} element @param {string} name */
function makeField(element, name) {
  const field = make("input", { inputmode: "decimal", autocomplete: "off", "aria-label": name });
  element.replaceChildren(field);
  return field;
}

/** Asks for a guess in place of a hidden result. @param {Element} element */
function ask(element) {
  const cell = /** @type {Cell} */ (cells.get(element));
  const { table, at, name } = cell;
  const field = makeField(element, `guess: ${name}`);
  field.className = "guess";
  field.size = table.digits + 3;
  field.addEventListener("blur", () => field.value.trim() || draw(cell));
  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") draw(cell);
    if (event.key !== "Enter") return;
    event.preventDefault(); // or it would press the button that gets the focus
    const [right, message] = judged(field.value, table.values[at], table.digits);
    say(message);
    field.setAttribute("aria-invalid", String(!right));
    if (!right) return field.select();
    table.known.add(at);
    element.classList.add("found");
    draw(cell);
    /** @type {any} */ (element.closest("section")?.querySelector("td button"))?.focus();
    offer();
  });
  field.focus();
}

/** Takes a changed number. @param {Element} element @param {HTMLInputElement} field */
function edit(element, field) {
  const { table, at, name } = /** @type {Cell} */ (cells.get(element));
  const value = entered(field.value);
  const wrong = !(Math.abs(value) <= LARGEST);
  field.ariaInvalid = wrong ? "true" : null;
  const kept = `${name} stays ${shown(table.values[at], table.digits)}`;
  if (wrong) return say(`“${field.value}” is not a number from −1,000 to 1,000; ${kept}.`);
  table.values[at] = value;
  say("");
  recompute();
}

/** Computes all that follows from changed numbers, and shows it. */
function recompute() {
  const changed = new Set();
  for (const [number, table] of tables) {
    if (table.rule) {
      const follows = Object.values(table.uses).some((each) => changed.has(each));
      table.values = follows ? computed(table, "values") : [...table.stored];
    }
    const moved = table.values.some((value, n) => !Object.is(value, table.stored[n]));
    if (moved) changed.add(number);
    for (const figure of document.querySelectorAll(`[data-table="${number}"]`)) {
      figure.querySelector("mark")?.remove();
      const text = table.rule ? "recomputed" : "changed by you";
      if (moved) figure.querySelector("figcaption")?.append(make("mark", {}, text));
    }
  }
  part("changed").hidden = !changed.size;
  for (const cell of cells.values()) if (!cell.element.querySelector(".guess")) draw(cell);
}

/** @param {string} text */
function say(text) {
  part("said").textContent = text;
}

const all = () => part("all").ariaPressed === "true";

/** The cells of results in what is shown, and whether one is hidden. */
function results() {
  const found = [...cells.values()].filter((cell) => {
    return cell.result && !cell.element.closest("[hidden]");
  });
  return { found, hidden: found.some(({ table, at }) => !table.known.has(at)) };
}

/** Says what the button for results would do. */
function offer() {
  const { found, hidden } = results();
  part("show").hidden = !found.length || data.answers;
  part("show").textContent = hidden ? "Show results" : "Hide results";
  if (hidden && !part("said").textContent) say("Choose a “?” to guess its number.");
}

/** Shows all results of the step, or hides them again. */
function toggleResults() {
  const { found, hidden } = results();
  for (const cell of data.answers ? [] : found) {
    cell.table.known[hidden ? "add" : "delete"](cell.at);
    cell.element.classList.remove("found");
    draw(cell);
  }
  say("");
  offer();
}

const address = () => `${lessons[here.lesson].dataset.lesson}/${here.step + 1}`;

/** Goes to a step, of the next lesson after the last one. @param {number} lesson @param {number} step */
function go(lesson, step) {
  const stepsOf = (/** @type {number} */ n) => lessons[n]?.querySelectorAll("section").length ?? 0;
  if (step >= stepsOf(lesson)) [lesson, step] = [lesson + 1, 0];
  else if (step < 0) [lesson, step] = [lesson - 1, stepsOf(lesson - 1) - 1];
  if (!lessons[lesson]) return;
  here = { lesson, step };
  if (location.hash.slice(1) !== address()) location.hash = address();
  render();
  if (!all()) {
    scrollTo(0, 0);
    lessons[lesson].querySelectorAll("h2")[step].focus({ preventScroll: true });
  }
}

/** Shows the step, its place and the list of steps. */
function render() {
  lessons.forEach((each, n) => each.hidden = n !== here.lesson);
  const sections = [...lessons[here.lesson].querySelectorAll("section")];
  sections.forEach((each, n) => each.hidden = !all() && n !== here.step);
  const titles = sections.map((each) => each.querySelector("h2")?.textContent ?? "");
  part("lesson").value = String(here.lesson);
  part("place").textContent = `Step ${here.step + 1} of ${sections.length}`;
  part("steps").replaceChildren(...titles.map((title, n) => {
    const button = make("button", {}, `${n + 1}. ${title}`);
    if (n === here.step) button.setAttribute("aria-current", "step");
    button.addEventListener("click", () => {
      part("list").open = false;
      go(here.lesson, n);
      if (all()) sections[n].scrollIntoView();
    });
    const item = make("li", {});
    item.append(button);
    return item;
  }));
  part("progress").firstElementChild.style.width = `${100 * (here.step + 1) / sections.length}%`;
  document.body.toggleAttribute("data-all", all());
  part("previous").hidden = part("next").hidden = all();
  part("previous").disabled = !here.lesson && !here.step;
  part("next").disabled = here.lesson === lessons.length - 1 && here.step === sections.length - 1;
  document.title = `${titles[here.step]} · ${lessons[here.lesson].dataset.lesson} · gptx lesson`;
  say("");
  offer();
}

/** Goes to the step that the address names, if there is one. */
function follow() {
  const [name, number] = location.hash.slice(1).split("/");
  const lesson = lessons.findIndex((each) => each.dataset.lesson === name);
  const step = Number(number ?? 1) - 1;
  if (lessons[lesson]?.querySelectorAll("section")[step]) here = { lesson, step };
  render();
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {Element} */ (event.target);
  const busy = target.matches?.("input, select, .scroll"); // .scroll: moves a wide table
  if (event.ctrlKey || event.altKey || event.metaKey || busy) return;
  if (event.key === " " && target.closest?.("button, summary")) return;
  const back = ["ArrowLeft", "PageUp"].includes(event.key) || event.key === " " && event.shiftKey;
  if (event.key === "s") toggleResults();
  else if (all()) return;
  else if (back) go(here.lesson, here.step - 1);
  else if (["ArrowRight", "PageDown", " "].includes(event.key)) go(here.lesson, here.step + 1);
  else return;
  event.preventDefault();
}

/** Light or dark. @param {boolean} dark */
function colour(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  part("theme").textContent = dark ? "○ light" : "● dark";
  part("theme").onclick = () => colour(!dark);
}

for (const [number, record] of Object.entries(data.tables)) {
  const stored = new Float64Array(bytes(record.base64).buffer);
  const known = new Set(data.answers ? stored.keys() : []);
  tables.set(Number(number), { ...record, stored, values: [...stored], known });
}
const editable = prove();
for (const element of document.querySelectorAll("figure td[data-at]")) {
  const figure = /** @type {HTMLElement} */ (element.closest("figure"));
  const table = tables.get(Number(figure.dataset.table));
  const row = element.parentElement?.firstElementChild?.textContent;
  const column = /** @type {HTMLTableCellElement} */ (element).cellIndex;
  const head = element.closest("table")?.rows[0].cells[column].textContent;
  const name = [figure.ariaLabel, row, head].filter(Boolean).join(", ");
  const at = Number(/** @type {HTMLElement} */ (element).dataset.at);
  const result = figure.className === "result";
  if (table) cells.set(element, { table, at, result, element, name });
}
for (const cell of cells.values()) draw(cell);
for (const [n, { dataset }] of lessons.entries()) {
  part("lesson").append(make("option", { value: String(n) }, dataset.lesson));
}
part("lesson").parentElement.hidden = lessons.length === 1;
part("lesson").addEventListener("change", () => go(Number(part("lesson").value), 0));
part("previous").addEventListener("click", () => go(here.lesson, here.step - 1));
part("next").addEventListener("click", () => go(here.lesson, here.step + 1));
part("show").addEventListener("click", toggleResults);
part("all").addEventListener("click", () => {
  part("all").ariaPressed = String(!all());
  render();
});
part("back").addEventListener("click", () => {
  for (const table of tables.values()) table.values = [...table.stored];
  for (const field of document.querySelectorAll("td input")) field.ariaInvalid = null;
  recompute();
});
here.step = data.start - 1;
const system = matchMedia("(prefers-color-scheme: dark)");
colour(system.matches);
system.addEventListener("change", () => colour(system.matches));
addEventListener("hashchange", () => {
  if (location.hash.slice(1) !== address()) follow();
});
addEventListener("keydown", onKey);
for (const each of document.querySelectorAll("header, #bar")) each.removeAttribute("hidden");
follow();
location.replace(`#${address()}`);
