// Headless Chromium with a persistent profile, and the pages that it opens.

import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import { build } from "esbuild";

const PATHS = [process.env["CHROMIUM"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
// Without the last ones it contacts its vendor's hosts.
const FLAGS = [
  ...["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"],
  ...["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad"],
  // A background tab must work like one in front.
  ...["--disable-background-timer-throttling", "--disable-renderer-backgrounding"],
];

export function chromiumPath(): string | undefined {
  return PATHS.find((path) => path !== undefined && existsSync(path));
}

export class Chromium {
  private process: ChildProcess | null = null;

  constructor(
    private readonly path: string,
    private readonly profile: string,
  ) {}

  start(address: string): void {
    const flags = [...FLAGS, `--user-data-dir=${this.profile}`];
    this.process = spawn(this.path, [...flags, address], { detached: true, stdio: "ignore" });
  }

  /** Kill it as a power failure would. */
  async kill(): Promise<void> {
    const { process: running } = this;
    this.process = null;
    if (running?.pid === undefined || running.exitCode !== null) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    process.kill(-running.pid, "SIGKILL"); // with its child processes, which are in its group
    await ended;
  }
}

/** A message of a page: its tab, the event, and details. */
export type Said = { tab: string; event: string } & Record<string, any>;

/** Serves one page and receives its messages. */
export class PageServer {
  readonly said: Said[] = [];

  private constructor(
    private readonly server: Server,
    readonly address: string,
  ) {}

  static async serving(script: string, answer: (said: Said) => Promise<object>): Promise<PageServer> {
    const code = await bundled(script);
    const server = createServer((request, response) => {
      if (request.method !== "POST") {
        const isScript = request.url === "/page.js";
        response.setHeader("Content-Type", isScript ? "text/javascript" : "text/html");
        return void response.end(isScript ? code : htmlOf(request.url!));
      }
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        const said: Said = JSON.parse(Buffer.concat(chunks).toString());
        made.said.push(said);
        void answer(said).then((result) => response.end(JSON.stringify(result)));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const made = new PageServer(server, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    return made;
  }

  all(event: string): Said[] {
    return this.said.filter((said) => said.event === event);
  }

  close(): void {
    this.server.close();
    this.server.closeAllConnections();
  }
}

/** Return a page; for `/two?...` one with two frames, which the browser treats like two tabs. */
function htmlOf(url: string): string {
  const page = '<script type="module" src="/page.js"></script>';
  const frame = (name: string) => `<iframe src="${url.replace("/two", "/")}#${name}"></iframe>`;
  return `<!doctype html>${url.startsWith("/two") ? frame("one") + frame("other") : page}`;
}

/** Return a page's script with all its imports, as an application's bundler makes it. */
async function bundled(script: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [script],
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    define: { global: "globalThis" },
    write: false,
    logLevel: "error",
  });
  return outputFiles[0].text;
}
