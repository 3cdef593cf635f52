// @ts-check
// Runs in a worker thread: opens and checks the model of the file, and answers the page's questions.

import { Analysis } from "./analysis.js";
import { Gpt } from "./gpt.js";
import { largestError } from "./probe.js";
import { unpack, unpackTensors } from "./weights.js";

/** @import { Reply, Request, StoredModel } from "./protocol.js" */

/** @type {Promise<Analysis>} */
let opened = new Promise(() => {}); // stays unresolved until the page sends the model

/** @param {Request} request */
async function answer(request) {
  if (request.kind === "open") opened = open(request.model);
  const analysis = await opened;
  if (request.kind === "read") reply({ kind: "read", ...analysis.answer(request) });
}

/** Opens and checks the model. Throws an Error if it is damaged, or if this browser computes other
 * logits. @param {StoredModel} model */
async function open(model) {
  const { config, means, probe } = model;
  const gpt = new Gpt(config, await unpackTensors(model), unpack(means));
  const error = largestError(gpt, probe);
  const bound = probe.tolerance;
  if (!(error <= bound)) { // also if it is NaN
    throw new Error(
      "This browser computes other logits than those stored in the file: they differ by " +
        `${error.toExponential(1)}, at most ${bound.toExponential(1)} is allowed.`,
    );
  }
  reply({ kind: "opened", error, bound });
  return new Analysis(gpt);
}

/** @param {Reply} message */
function reply(message) {
  self.postMessage(message);
}

self.addEventListener("message", ({ data }) => {
  answer(data).catch((error) => reply({ kind: "failed", reason: error.message }));
});
