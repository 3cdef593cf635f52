// @ts-check
// The page of a model with an encoder.

import { makeAsk, makeByHand } from "./ask.js";
import { PairEditor } from "./pair_editor.js";
import { PairSession } from "./pair_session.js";
import { makePair } from "./pair_text.js";
import { rowsOfPairs } from "./pair_write.js";
import { start } from "./start.js";

/** @type {import("./start.js").Pieces<PairSession>} */
const pieces = {
  opening:
    "Type a source: the model writes its target. Click a head, a character of the target or a cell.",
  session: (data, client, show) => new PairSession(/** @type {any} */ (data), client, show),
  editor: (session, typed) => new PairEditor(session, typed),
  parts(app, session) {
    app.compared = rowsOfPairs(session);
    app.keptRow = () => session.kept;
    return [makePair(app, session), makeAsk(app, session), makeByHand(app, session)];
  },
};
start(pieces);
