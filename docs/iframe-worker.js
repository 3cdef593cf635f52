// The search computes in a worker. Browsers start none from a file on the disk, so there its script
// runs in a hidden frame. mkdocs.yml names this file.
class FrameWorker extends EventTarget {
  /** @param {string} address of the script */
  constructor(address) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    frame.srcdoc = `<script src="${address}"></script>`;
    /** @type {Promise<Window>} */
    this.started = new Promise((resolve) => {
      frame.addEventListener("load", () => {
        const inside = /** @type {Window} */ (frame.contentWindow);
        inside.postMessage = (/** @type {unknown} */ data) => {
          this.dispatchEvent(new MessageEvent("message", { data }));
        };
        resolve(inside);
      });
    });
    document.body.append(frame);
  }

  /** @param {unknown} data */
  async postMessage(data) {
    (await this.started).dispatchEvent(new MessageEvent("message", { data }));
  }
}

if (location.protocol === "file:") Object.assign(globalThis, { Worker: FrameWorker });
