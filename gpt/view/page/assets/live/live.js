// @ts-check
// The page of a model without an encoder.

import { makeAsk } from "./ask.js";
import { Editor } from "./editor.js";
import { Session } from "./session.js";
import { start } from "./start.js";
import { makeWrite } from "./write.js";

start({
  session: (data, client, show) => new Session(data, client, show),
  editor: (session, typed) => new Editor(session, typed),
  parts: (app, session) => [makeAsk(app, session), makeWrite(app, session)],
});
