// @ts-check
// Functions for test_javascript.py.

/** @param {number[]} values */
export function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

/** @param {any} value */
export async function same(value) {
  return await value;
}

/** @param {string} message */
export function fail(message) {
  throw new Error(message);
}

/** @param {any} value */
export function nameOf(value) {
  return value.constructor.name;
}
