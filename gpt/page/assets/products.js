// @ts-check
// The products of a query and a key that sum to the score of the chosen cell, the largest first.

import { make, mark, part, quoted, say } from "./dom.js";
import { format, signed } from "./format.js";

/** @import { App } from "./app.js" */

const MOST_PRODUCTS = 10; // bars

/** @param {App} app */
export function makeProducts(app) {
  const host = part("products");
  app.parts.push(({ answer: { products }, typed: { characters }, row, key, look }) => {
    const order = [...products.keys()].sort((i, j) =>
      Math.abs(products[j]) - Math.abs(products[i])
    );
    const most = Math.abs(products[order[0]]) || 1;
    const bars = order.slice(0, MOST_PRODUCTS).flatMap((n) => {
      const inner = make("i", { class: products[n] < 0 ? "less" : "more" });
      inner.style.width = `${100 * Math.abs(products[n]) / most}%`;
      return [make("span", { class: "product" }, inner), make("code", {}, signed(products[n]))];
    });
    host.replaceChildren(...bars);
    const [query, keyed] = [quoted(characters[row]), quoted(characters[key])];
    say(
      part("products-title"),
      `Why ${query} looks at ${keyed}: query × key, by dimension`,
    );
    const size = products.length;
    const sum = products.reduce((sum, product) => sum + product, 0);
    const scaled = format(sum / Math.sqrt(size));
    const sums = `sum to ${format(sum)}, ÷ √${size} = ${scaled}.`;
    const counted = size > MOST_PRODUCTS
      ? `${MOST_PRODUCTS} largest of ${size}; all`
      : `All ${size}`;
    const text = `${counted} ${sums}`;
    say(part("products-sum"), text);
    mark(host, "aria-label", `products of head ${look.head}: ${text}`);
  });
}
