// @ts-check
// Computes the rules of a lesson's tables, in float64. Functions take the last axis. Operators have
// the names of Python's ast.

/** A number, a row of numbers, rows of rows … @typedef {any} Tensor */
/** A number, the key of a table, or a list: a function's name and its operands. Of `part`, also a
 * slice, and null for a new axis. @typedef {any} Rule */
/** @typedef {Record<string, (...operands: Tensor[]) => Tensor>} Functions */

const total = (/** @type {number[]} */ row) => row.reduce((sum, value) => sum + value, 0);
const cumsum = (/** @type {number[]} */ row) => row.map((_, n) => total(row.slice(0, n + 1)));

/** @type {Functions} */
const FUNCTIONS = {
  ...along(0, {
    Lt: (a, b) => +(a < b),
    GtE: (a, b) => +(a >= b),
    Eq: (a, b) => +(a === b),
    Add: (a, b) => a + b,
    Sub: (a, b) => a - b,
    USub: (a) => -a,
    Mult: (a, b) => a * b,
    Div: (a, b) => a / b,
    where: (condition, a, b) => condition ? a : b,
    exp: Math.exp,
    log: Math.log,
    log2: Math.log2,
    sqrt: Math.sqrt,
    abs: Math.abs,
    sin: Math.sin,
    cos: Math.cos,
  }),
  ...along(1, {
    sum: total,
    max: (row) => Math.max(...row),
    softmax: (/** @type {number[]} */ row) => {
      const raised = row.map((value) => Math.exp(value - Math.max(...row)));
      return raised.map((value) => value / total(raised));
    },
    cumsum,
    // For each number, the sum of the amounts of those that are larger, or equal and earlier.
    before: (/** @type {number[]} */ p, amounts) => {
      const order = [...p.keys()].sort((n, m) => p[m] - p[n] || n - m);
      const sums = cumsum(order.map((n) => amounts[n]));
      return p.map((_, n) => sums[order.indexOf(n)] - amounts[n]);
    },
    concat: (...rows) => rows.flat(),
    columns: (...rows) => transposed(rows),
    interleave: (...rows) => transposed(rows).flat(),
  }),
  ...along(2, {
    MatMult: product,
    T: transposed,
    above: (...matrices) => matrices.flat(),
    causal: (/** @type {number[][]} */ x) =>
      x.map((row, n) => row.map((value, m) => m > n ? -Infinity : value)),
  }),
  inf: () => Infinity,
  range: (count) => Array.from({ length: count }, (_, n) => n),
  stack: (...parts) => parts,
  part: partOf,
};

/** Functions of numbers (axes 0), rows (1) or matrices (2) as functions of tensors, whose other axes
 * are broadcast as numpy's. @param {number} axes @param {Functions} functions @returns {Functions} */
function along(axes, functions) {
  const lifted = Object.entries(functions).map(([name, combine]) => {
    /** @param {Tensor[]} parts @returns {Tensor} */
    function apply(...parts) {
      const most = Math.max(...parts.map(depth));
      if (most <= axes) return combine(...parts);
      const rows = parts.map((part) => depth(part) === most ? part : [part]);
      const length = Math.max(...rows.map((row) => row.length));
      if (rows.some((row) => ![1, length].includes(row.length))) throw Error("shapes differ");
      return FUNCTIONS.range(length).map((/** @type {number} */ n) =>
        apply(...rows.map((row) => row[n % row.length]))
      );
    }
    return [name, apply];
  });
  return Object.fromEntries(lifted);
}

/** Numbers one after the other as rows. @param {number[]} values @param {number[]} shape @returns {Tensor} */
export function nested(values, [size, ...rest]) {
  const each = values.length / size;
  const row = (/** @type {number} */ n) => nested(values.slice(n * each, (n + 1) * each), rest);
  return rest.length ? Array.from({ length: size }, (_, n) => row(n)) : values;
}

/** @param {Tensor} x @returns {number} */
function depth(x) {
  return Array.isArray(x) ? 1 + depth(x[0]) : 0;
}

/** @param {Tensor[][]} x */
function transposed(x) {
  return x[0].map((_, n) => x.map((row) => row[n]));
}

/** The product of rows or matrices. @param {Tensor[]} a @param {Tensor[]} b @returns {Tensor} */
function product(a, b) {
  if (depth(a) === 2) return a.map((row) => product(row, b));
  if (depth(b) === 2) return product(transposed(b), a);
  if (a.length !== b.length) throw Error("shapes differ");
  return total(a.map((value, n) => value * b[n]));
}

/** @param {Tensor} x @param {Rule[]} indices of its first axes @returns {Tensor} */
function partOf(x, ...[first, ...rest]) {
  if (first === undefined) return x;
  if (first === null) return [partOf(x, ...rest)];
  if (typeof first === "number") return partOf(x.at(first), ...rest);
  const rows = /** @type {Tensor[]} */ (x.slice(first.start, first.stop));
  return rows.filter((_, n) => n % (first.step ?? 1) === 0).map((row) => partOf(row, ...rest));
}

/** The value of a rule. tableOf: the table of a key. Throws an Error for what is no rule.
 * @param {Rule} rule @param {(key: string) => Tensor} tableOf @returns {Tensor} */
export function evaluate(rule, tableOf) {
  if (typeof rule === "string") return tableOf(rule);
  if (!Array.isArray(rule)) return rule;
  const [name, ...operands] = rule;
  return FUNCTIONS[name](...operands.map((each) => evaluate(each, tableOf)));
}
