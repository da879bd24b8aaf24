// The page of the Chromium test: a device that searches as the address says, and reports to the test.

import { deviceKey, EdgeClient } from "../../src/index.js";

async function tell(event: string, details: object): Promise<any> {
  const said = { method: "POST", body: JSON.stringify({ tab: location.hash, event, ...details }) };
  return (await fetch("/said", said)).json();
}

const wanted = new URLSearchParams(location.search);
const key = await deviceKey();
const { credentials, broker } = await tell("key", key);
const client = await EdgeClient.open({
  credentials,
  broker,
  clickWindowS: 0,
  onChange: ({ state }) =>
    void tell("state", { ...state, weights: state.weights === null ? null : [...state.weights] }),
});
await new Promise<void>((resolve) => {
  const wait = () => (client.modelVersion === null ? setTimeout(wait, 20) : resolve());
  wait();
});
for (let i = 0; i < Number(wanted.get("searches")); i++) {
  const rows = [
    [0, 1],
    [1, 0],
    [0.5, 0.5],
  ];
  const serp = client.rank(rows);
  await client.recordClicks(serp.serpId, [serp.ranking.indexOf(1)]);
  await tell("recorded", { serp: serp.serpId });
}
