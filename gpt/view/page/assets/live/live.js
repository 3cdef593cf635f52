// @ts-check
// The page that computes: opens its model, proves it, and draws what it computes. Shows nothing but the
// reason if the file is damaged or this browser computes other numbers.

import { make, part } from "../parts.js";
import { makeView } from "../view.js";
import { makeAsk, makeByHand } from "./ask.js";
import { Client } from "./client.js";
import { Editor } from "./editor.js";
import { Session } from "./session.js";
import { makeTour } from "./tour_bar.js";
import { drawnNext } from "./write.js";

/** @import { Payload } from "../payload.js" */
/** @import { Own } from "./session.js" */

const INVITATION = "Type in the text or press write, and click a head, a character or a cell.";

/** Shows nothing but a reason. @param {string} reason */
function refuse(reason) {
  document.querySelector("main")?.setAttribute("hidden", "");
  document.querySelector("footer")?.setAttribute("hidden", "");
  part("precision").textContent = "";
  const notice = part("notice");
  notice.hidden = false;
  notice.className = "failed";
  notice.replaceChildren(
    make("strong", null, "This page shows no numbers. "),
    reason,
    " Make the page again with gptx live.",
  );
}

/** What the next character after a position is drawn from; null before the end of the text.
 * @param {Session} session @param {import("../data.js").Subject} subject @param {number} position */
function drawnAt(session, subject, position) {
  const { options } = session;
  const { next } = subject.payload;
  return position === subject.length - 1 && next ? drawnNext(session, next, options.drawing) : null;
}

/** @param {Payload & Own & {model: object}} data */
function openPage(data) {
  if (!getComputedStyle(document.documentElement).getPropertyValue("--card")) {
    throw new Error("Its style is damaged.");
  }
  /** @type {ReturnType<typeof makeView> | null} */
  let view = null;
  const client = new Client(/** @type {any} */ (globalThis).WORKER, refuse);
  const session = new Session(data, client, (subjects) => {
    data.legend = session.legendOf(subjects);
    if (view) {
      const { of, more } = view.app.state;
      view.show(subjects);
      if (view.app.state.of !== of) view.app.change({ more }); // the address says what is shown
    } else {
      part("notice").hidden = true;
      document.querySelector("main")?.removeAttribute("hidden");
      document.querySelector("footer")?.removeAttribute("hidden");
      view = makeView(data, subjects, additions);
      const { app } = view;
      let wanted = JSON.stringify(session.wanted(Infinity)); // without the address
      session.state = () => app.state;
      app.rendered = () => {
        const now = JSON.stringify(session.wanted(Infinity));
        if (now !== wanted) session.ask();
        wanted = now;
      };
      app.rendered();
      addEventListener("hashchange", restore); // after the view, which reads the address
    }
    editor.render();
  });
  const editor = new Editor(session, () => session.changed());
  const share = /** @type {HTMLInputElement} */ (part("share"));
  const tour = makeTour(session, share, () => editor.fill());
  const additions = {
    opening: `${INVITATION} ${data.about}`,
    settings: Object.keys(session.toSettings(false)),
    parts(/** @type {import("../parts.js").App} */ app) {
      app.drawing = (subject, position) => drawnAt(session, subject, position);
      return [
        makeAsk(app, session),
        makeByHand(app, session),
        tour.show(app),
      ];
    },
    keys: [...tour.keys, {
      key: "x",
      name: "x",
      does: "switch the shown head off or on",
      act() {
        const { app } = view ?? {};
        if (app?.state.view === "head") app.switches?.toggle(app.state.layer, app.state.head);
      },
    }],
  };
  const write = () => {
    const app = view?.app;
    const more = session.toSettings(share.checked);
    if (app && JSON.stringify(app.state.more) !== JSON.stringify(more)) app.change({ more });
  };
  session.changed = () => {
    write();
    session.ask();
  };
  session.drawn = () => {
    write();
    editor.render();
  };
  share.addEventListener("change", write);
  /** Takes the settings of another address; its text only when the page opens. */
  function restore() {
    const more = view?.app.state.more;
    if (!more || JSON.stringify(more) === JSON.stringify(session.toSettings(share.checked))) {
      return;
    }
    const other = more.stop !== session.stop;
    client.stop();
    session.fromSettings(more);
    if (other) tour.begin();
    session.ask();
  }
  client.open(data.model).then(() => {
    const said = new URLSearchParams(location.hash.slice(1));
    const more = Object.fromEntries(additions.settings.map((name) => [name, said.get(name) ?? ""]));
    session.open(more.text);
    session.fromSettings(more);
    share.checked = more.text !== "";
    tour.begin();
    editor.fill();
    session.ask();
  });
}

addEventListener("error", ({ error, message }) => {
  if (error) refuse(`The program of the page failed: ${message}.`); // none: a ResizeObserver's note
});
addEventListener(
  "unhandledrejection",
  ({ reason }) => refuse(`The program of the page failed: ${reason}.`),
);
openPage(JSON.parse(part("data").textContent ?? ""));
