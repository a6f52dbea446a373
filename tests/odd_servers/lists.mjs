// The official TypeScript SDK's client: the names of everything that the server at an address lists, as JSON by list.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const client = new Client({ name: "odd", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const listed = Object.assign(
  await client.listTools(),
  await client.listPrompts(),
  await client.listResources(),
  await client.listResourceTemplates(),
);
const kinds = ["tools", "prompts", "resources", "resourceTemplates"];
console.log(JSON.stringify(Object.fromEntries(kinds.map((kind) => [kind, listed[kind].map((each) => each.name)]))));
process.exit(0);
