// @ts-check
// The page of a model without an encoder.

import { makeAsk, makeByHand, makeUnit } from "./ask.js";
import { Editor } from "./editor.js";
import { Session } from "./session.js";
import { start } from "./start.js";
import { drawnNext } from "./write.js";

start({
  opening: "Type in the text or press write, and click a head, a character or a cell.",
  session: (data, client, show) => new Session(data, client, show),
  editor: (session, typed) => new Editor(session, typed),
  parts(app, session) {
    app.drawing = (subject, position) => {
      const { options } = session;
      const scores = position === subject.length - 1 ? subject.nextOf(options.only()) : null;
      const both = options.only() ? null : subject.payload.next ?? null;
      return scores && drawnNext(session, scores, options.drawing, both);
    };
    return [makeAsk(app, session), makeByHand(app, session), makeUnit(session)];
  },
});
