// @ts-check
// The page's side of the worker that computes (model/worker.js): questions and their answers. Of
// several readings that wait, only the last is computed, so that typing never waits.

/** @import { Answer, Ask, Reply, Request, WriteRequest } from "../model/worker.js" */

export class Client {
  /**
   * @param {string} source of the worker
   * @param {(reason: string) => void} fail is called once, with the reason
   */
  constructor(source, fail) {
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    this.worker = new Worker(address);
    this.worker.addEventListener("message", ({ data }) => this.#receive(data));
    this.worker.addEventListener("error", (event) => {
      event.preventDefault();
      fail(`The computation failed: ${event.message || "the browser refused to start it"}.`);
    });
    this.fail = fail;
    /** @type {() => void} */
    this.opened = () => {};
    /** @type {{asks: Ask[], done: (answers: Answer[]) => void} | null} */
    this.now = null;
    /** @type {{asks: Ask[], done: (answers: Answer[]) => void} | null} */
    this.waiting = null;
    /** @type {{more: (ids: number[]) => void, done: () => void} | null} */
    this.writing = null;
  }

  /** Sends the model and waits for its proof. @param {any} model @returns {Promise<void>} */
  open(model) {
    return new Promise((resolve) => {
      this.opened = resolve;
      this.#send({ kind: "open", model });
    });
  }

  /**
   * Computes texts. A call that comes while another one waits replaces it: then `done` of the other
   * is never called.
   * @param {Ask[]} asks
   * @param {(answers: Answer[]) => void} done
   */
  read(asks, done) {
    this.waiting = { asks, done };
    if (!this.now) this.#next();
    this.#tell();
  }

  /**
   * Lets the model continue a text, in pieces.
   * @param {Omit<WriteRequest, "kind">} request
   * @param {(ids: number[]) => void} more
   * @param {() => void} done
   */
  write(request, more, done) {
    this.writing = { more, done };
    this.#send({ kind: "write", ...request });
  }

  /** Ends the writing; what is on its way still arrives. */
  stop() {
    if (this.writing) this.#send({ kind: "stop" });
  }

  #next() {
    this.now = this.waiting;
    this.waiting = null;
    if (this.now) this.#send({ kind: "read", asks: this.now.asks });
  }

  /** Tells screen readers, and tests, whether numbers are on their way. */
  #tell() {
    document.querySelector("main")?.setAttribute("aria-busy", String(this.now !== null));
  }

  /** @param {Request} request */
  #send(request) {
    this.worker.postMessage(request);
  }

  /** @param {Reply} reply */
  #receive(reply) {
    if (reply.kind === "failed") this.fail(reply.reason);
    else if (reply.kind === "opened") this.opened();
    else if (reply.kind === "wrote") this.writing?.more(reply.ids);
    else if (reply.kind === "stopped") {
      const { writing } = this;
      this.writing = null;
      writing?.done();
    } else {
      const { now, waiting } = this;
      this.now = null;
      if (waiting) this.#next();
      now?.done(reply.answers);
      this.#tell();
    }
  }
}
