// @ts-check
// Draws the products of the chosen cell's query and key, which sum to q · k; the largest come first.

import { byId, make, quoted, setAttr, setText } from "./dom.js";
import { format, signed } from "./format.js";

/** @import { App } from "./app.js" */

const MOST_PRODUCTS = 10; // bars

/** @param {App} app */
export function makeProducts(app) {
  const host = byId("products");
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
    setText(
      byId("products-title"),
      `Why ${query} looks at ${keyed}: query × key, by dimension`,
    );
    const size = products.length;
    const sum = products.reduce((sum, product) => sum + product, 0);
    const scaled = format(sum / Math.sqrt(size));
    const sums = `sum to ${format(sum)}, ÷ √${size} = ${scaled}.`;
    const largest = size > MOST_PRODUCTS ? `${MOST_PRODUCTS} largest shown. ` : "";
    const text = `${largest}All ${size} ${sums}`;
    setText(byId("products-sum"), text);
    setAttr(host, "aria-label", `products of head ${look.head}: ${text}`);
  });
}
