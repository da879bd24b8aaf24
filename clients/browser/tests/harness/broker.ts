// A broker for tests, on a port for MQTT and one for MQTT over WebSockets.

import { createServer as createHttpServer } from "node:http";
import { createServer, type AddressInfo, type Server } from "node:net";

import { Aedes } from "aedes";
import { createWebSocketStream, WebSocketServer } from "ws";

export interface Broker {
  readonly mqtt: string;
  readonly webSocket: string;
  /** Break every connection, as an outage does. */
  breakConnections(): void;
  close(): Promise<void>;
}

export async function startBroker(): Promise<Broker> {
  const aedes = await Aedes.createBroker({ heartbeatInterval: 3_600_000 });
  const tcp = createServer((socket) => void aedes.handle(socket));
  const http = createHttpServer();
  const sockets = new WebSocketServer({ server: http });
  sockets.on("connection", (socket, request) => {
    const stream = createWebSocketStream(socket);
    stream.on("error", () => undefined); // tests break connections
    void aedes.handle(stream, request);
  });
  return {
    mqtt: `mqtt://127.0.0.1:${await portOf(tcp)}`,
    webSocket: `ws://127.0.0.1:${await portOf(http)}/mqtt`,
    breakConnections: () => sockets.clients.forEach((socket) => socket.terminate()),
    close: async () => {
      sockets.clients.forEach((socket) => socket.terminate());
      await new Promise<void>((resolve) => aedes.close(() => resolve()));
      tcp.close();
      http.close();
    },
  };
}

async function portOf(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}
