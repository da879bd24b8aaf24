// The site's server: its files, and for each browser that posts its public key the answer of serve.py.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";

const FILES = ["/index.html", "/page.js", "/index.json", "/features.json"];
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".json": "application/json" };

/** Serve the site, and enrol browsers that post a key. Returns the address, and a function that closes it. */
export async function serveSite(site, federation) {
  let turn = Promise.resolve(); // answers come in the order of the requests
  const enrol = (key) => (turn = turn.then(() => (federation.tell(key), federation.line())));
  const server = createServer((request, response) => {
    if (request.method === "GET") return sendFile(site, request.url === "/" ? "/index.html" : request.url, response);
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", async () => {
      response.setHeader("Content-Type", "application/json");
      response.end(await enrol(Buffer.concat(chunks).toString()));
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => (server.close(), server.closeAllConnections());
  return { address: `http://127.0.0.1:${server.address().port}/`, close };
}

function sendFile(site, path, response) {
  if (!FILES.includes(path)) return response.writeHead(404).end();
  response.setHeader("Content-Type", TYPES[extname(path)]);
  response.end(readFileSync(join(site, path)));
}
