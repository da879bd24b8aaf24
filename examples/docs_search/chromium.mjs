// Headless Chromium, controlled by its debugging protocol, and what its pages send.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { requireOfClient } from "./build.mjs";

const { WebSocket } = requireOfClient("ws");
const PATHS = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const FLAGS = [
  ...["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"],
  ...["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad"],
  // A background page must work like the one in front.
  ...["--disable-background-timer-throttling", "--disable-renderer-backgrounding"],
  ...["--disable-backgrounding-occluded-windows", "--remote-debugging-port=0"],
  ...["--window-size=860,900", "--hide-scrollbars"],
];
const PATIENCE_MS = 60_000;

export class Chromium {
  #process;
  #profile;
  #socket;
  #sessions = new Map();
  #waiting = new Map();
  #serial = 0;

  static async start() {
    const path = PATHS.find((one) => one !== undefined && existsSync(one));
    if (path === undefined) throw new Error("there is no Chromium here; CHROMIUM=... says where it is");
    const made = new Chromium();
    made.#profile = mkdtempSync(join(tmpdir(), "docs-search-"));
    const flags = [...FLAGS, `--user-data-dir=${made.#profile}`, "about:blank"];
    made.#process = spawn(path, flags, { detached: true, stdio: "ignore" });
    made.#socket = new WebSocket(await made.#address(), { perMessageDeflate: false });
    await new Promise((resolve, reject) => made.#socket.once("open", resolve).once("error", reject));
    made.#socket.on("message", (text) => made.#take(JSON.parse(text)));
    return made;
  }

  /** Open a page as a separate visitor: it shares neither store nor key with other pages. */
  async open(url) {
    const { browserContextId } = await this.send("Target.createBrowserContext");
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank", browserContextId });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId);
    await this.watch(page, sessionId);
    await page.send("Page.enable");
    await page.send("Page.navigate", { url });
    return page;
  }

  /** Record what one of a page's sessions sends, and what the workers it starts send. */
  async watch(page, sessionId) {
    this.#sessions.set(sessionId, page);
    await this.send("Network.enable", {}, sessionId);
    await this.send(
      "Target.setAutoAttach",
      { autoAttach: true, waitForDebuggerOnStart: true, flatten: true },
      sessionId,
    );
    await this.send("Runtime.runIfWaitingForDebugger", {}, sessionId);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.#serial;
    this.#socket.send(JSON.stringify({ id, method, params, sessionId }));
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  async close() {
    this.#socket?.terminate();
    if (this.#process.exitCode === null && this.#process.pid !== undefined) {
      const ended = new Promise((resolve) => this.#process.once("exit", resolve));
      process.kill(-this.#process.pid, "SIGKILL"); // with its child processes, which are in its group
      await ended;
    }
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  /** Return its address, which it writes into its profile. */
  async #address() {
    const file = join(this.#profile, "DevToolsActivePort");
    for (const end = Date.now() + PATIENCE_MS; Date.now() < end;) {
      const [port, path] = existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : [];
      if (path !== undefined) return `ws://127.0.0.1:${port}${path}`;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error("Chromium did not start");
  }

  #take({ id, result, error, method, params, sessionId }) {
    if (id === undefined) return this.#sessions.get(sessionId)?.take(method, params);
    const { resolve, reject } = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error === undefined) resolve(result);
    else reject(new Error(error.message));
  }
}

/** A page, and all that it and its workers have sent. */
class Page {
  /** By WebSocket, the bytes of each sent frame in base64. */
  frames = {};
  /** Method, address and body of each other request. */
  requests = [];

  constructor(browser, session) {
    this.browser = browser;
    this.session = session;
  }

  send(method, params) {
    return this.browser.send(method, params, this.session);
  }

  /** Call a function in the page, without access to this script, and await its promise. */
  async call(callable, ...given) {
    const expression = `(${callable})(...${JSON.stringify(given)})`;
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      ...{ expression, awaitPromise: true, returnByValue: true },
    });
    if (exceptionDetails === undefined) return result.value;
    throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  }

  /** Return a picture of the whole page, including what is outside the window. */
  async screenshot() {
    const { cssContentSize } = await this.send("Page.getLayoutMetrics");
    const clip = { ...cssContentSize, scale: 1 };
    const { data } = await this.send("Page.captureScreenshot", { format: "png", clip, captureBeyondViewport: true });
    return Buffer.from(data, "base64");
  }

  take(event, params) {
    if (event === "Network.webSocketFrameSent") {
      const { opcode, payloadData } = params.response;
      const bytes = opcode === 2 ? payloadData : Buffer.from(payloadData).toString("base64");
      (this.frames[params.requestId] ??= []).push(bytes);
    } else if (event === "Network.requestWillBeSent") {
      const { method, url, postData } = params.request;
      this.requests.push({ method, url, body: postData ?? "" });
    } else if (event === "Target.attachedToTarget") {
      this.browser.watch(this, params.sessionId).catch(() => undefined); // the worker may have ended already
    }
  }
}
