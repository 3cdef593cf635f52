// @ts-check
// Computes the rules of a lesson's tables: expressions in numpy's notation, in float64. Functions
// take the last axis.

/** A number, a row of numbers, rows of rows … @typedef {any} Tensor */
/** start, end and step of a slice, or a position; "None": a new axis.
 * @typedef {(number | undefined)[] | "None"} Index */

const TOKENS = /\d+\.?\d*|[\p{L}_][\p{L}\p{N}_]*|[<>=]=|\S/gu;

/** Operators, from those that bind least. @type {Record<string, (a: Tensor, b: Tensor) => Tensor>[]} */
const BINARY = [
  {
    "<": zipped((a, b) => +(a < b)),
    ">=": zipped((a, b) => +(a >= b)),
    "==": zipped((a, b) => +(a === b)),
  },
  { "+": zipped((a, b) => a + b), "-": zipped((a, b) => a - b) },
  { "*": zipped((a, b) => a * b), "/": zipped((a, b) => a / b), "@": product },
];

/** @type {Record<string, (...parts: Tensor[]) => Tensor>} */
const FUNCTIONS = {
  exp: mapped(Math.exp),
  log: mapped(Math.log),
  log2: mapped(Math.log2),
  sqrt: mapped(Math.sqrt),
  abs: mapped(Math.abs),
  sin: mapped(Math.sin),
  cos: mapped(Math.cos),
  sum: byRow(total),
  max: byRow((row) => Math.max(...row)),
  softmax: byRow((row) => {
    const raised = row.map((value) => Math.exp(value - Math.max(...row)));
    return raised.map((value) => value / total(raised));
  }),
  cumsum: byRow((row) => row.map((_, n) => total(row.slice(0, n + 1)))),
  // For each number, the sum of the amounts of those that are larger, or equal and earlier.
  before: byRow((p, amounts) => {
    const order = [...p.keys()].sort((n, m) => p[m] - p[n] || n - m);
    const sums = FUNCTIONS.cumsum(order.map((n) => amounts[n]));
    return p.map((_, n) => sums[order.indexOf(n)] - amounts[n]);
  }),
  causal: (x) => rowsOf(x).map((row, n) => rowsOf(row).map((each, m) => m > n ? -Infinity : each)),
  range: (count) => Array.from({ length: count }, (_, n) => n),
  where: (condition, one, other) => {
    const choices = zipped((holds, a) => (/** @type {number} */ b) => holds ? a : b);
    return zipped((choose, b) => choose(b))(choices(condition, one), other);
  },
  stack: (...parts) => parts,
  above: (...parts) => parts.flat(),
  concat: byRow((...rows) => rows.flat()),
  columns: byRow((...rows) => transposed(rows)),
  interleave: byRow((...rows) => transposed(rows).flat()),
};

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

/** @param {number[]} row */
function total(row) {
  return row.reduce((sum, value) => sum + value, 0);
}

/** @param {(value: number) => Tensor} change @returns {(x: Tensor) => Tensor} */
function mapped(change) {
  return (x) => Array.isArray(x) ? x.map(mapped(change)) : change(x);
}

/** A function of the rows of one tensor or several of the same shape.
 * @param {(...rows: number[][]) => Tensor} change @returns {(...parts: Tensor[]) => Tensor} */
function byRow(change) {
  return (...parts) => {
    if (depth(parts[0]) < 2) return change(...parts);
    return rowsOf(parts[0]).map((_, n) => byRow(change)(...parts.map((part) => part[n])));
  };
}

/** A function of each pair of numbers; shapes are broadcast as numpy's.
 * @param {(a: any, b: any) => any} combine @returns {(a: Tensor, b: Tensor) => Tensor} */
function zipped(combine) {
  /** @param {Tensor} a @param {Tensor} b @returns {Tensor} */
  function zip(a, b) {
    const deeper = depth(a) - depth(b);
    if (deeper > 0) return rowsOf(a).map((row) => zip(row, b));
    if (deeper < 0) return rowsOf(b).map((row) => zip(a, row));
    if (!Array.isArray(a)) return combine(a, b);
    if (a.length !== b.length && a.length > 1 && b.length > 1) throw Error("shapes differ");
    const longer = rowsOf(a.length === 1 ? b : a);
    return longer.map((_, n) => zip(a[n % a.length], b[n % b.length]));
  }
  return zip;
}

/** @param {Tensor} x @returns {Tensor[]} */
function rowsOf(x) {
  return x;
}

/** @param {Tensor} x @returns {Tensor} with its last two axes exchanged */
function transposed(x) {
  if (depth(x) > 2) return rowsOf(x).map(transposed);
  return rowsOf(x[0]).map((_, n) => rowsOf(x).map((row) => row[n]));
}

/** The product of matrices or stacks of them. @param {Tensor} a @param {Tensor} b @returns {Tensor} */
function product(a, b) {
  if (depth(a) > 2) return rowsOf(a).map((each, n) => product(each, depth(b) > 2 ? b[n] : b));
  if (depth(a) === 2) return rowsOf(a).map((row) => product(row, b));
  if (depth(b) === 2) return product(transposed(b), a);
  if (a.length !== b.length) throw Error("shapes differ");
  return total(rowsOf(a).map((value, n) => value * b[n]));
}

/** @param {Tensor} x @param {Index[]} indices of its first axes @returns {Tensor} */
function partOf(x, [first, ...rest]) {
  if (first === undefined) return x;
  if (first === "None") return [partOf(x, rest)];
  const [start, end, step] = first;
  if (first.length === 1) return partOf(x.at(start), rest);
  const kept = rowsOf(x.slice(start, end)).filter((_, n) => n % (step ?? 1) === 0);
  return kept.map((each) => partOf(each, rest));
}

/**
 * The value of a rule. tableOf: the table of a key. Throws an Error for what is no rule.
 * @param {string} rule
 * @param {(key: string) => Tensor} tableOf
 * @returns {Tensor}
 */
export function evaluate(rule, tableOf) {
  const tokens = rule.match(TOKENS) ?? [];
  let at = 0;
  const take = (/** @type {string} */ token) => tokens[at] === token && ++at > 0;
  const need = (/** @type {string} */ token) => {
    if (!take(token)) throw Error(`${rule}: ${token} expected, not ${tokens[at]}`);
  };

  /** @param {number} level @returns {Tensor} */
  function binary(level) {
    if (level === BINARY.length) return unary();
    let left = binary(level + 1);
    for (let act = BINARY[level][tokens[at]]; act; act = BINARY[level][tokens[at]]) {
      at++;
      left = act(left, binary(level + 1));
    }
    return left;
  }

  /** @returns {Tensor} */
  function unary() {
    if (take("-")) return mapped((value) => -value)(unary());
    let value = primary();
    while (tokens[at] === "[" || tokens[at] === ".") {
      if (take("[")) value = partOf(value, list("]", index));
      else {
        at++;
        need("T");
        value = transposed(value);
      }
    }
    return value;
  }

  /** @returns {Tensor} */
  function primary() {
    const token = tokens[at++];
    if (token === "(") {
      const [value] = list(")", () => binary(0));
      return value;
    }
    if (/^\d/.test(token)) return Number(token);
    if (token === "inf") return Infinity;
    return take("(") ? FUNCTIONS[token](...list(")", () => binary(0))) : tableOf(token);
  }

  /** Values with commas between, up to a bracket. @template T @param {string} end @param {() => T} read */
  function list(end, read) {
    const found = [read()];
    while (take(",")) found.push(read());
    need(end);
    return found;
  }

  /** @returns {Index} */
  function index() {
    if (take("None")) return "None";
    const found = [number()];
    while (take(":")) found.push(number());
    return found;
  }

  function number() {
    const sign = take("-") ? -1 : 1;
    return /^\d+$/.test(tokens[at]) ? sign * Number(tokens[at++]) : undefined;
  }

  const value = binary(0);
  if (at < tokens.length) throw Error(`${rule}: ${tokens[at]} not expected`);
  return value;
}
