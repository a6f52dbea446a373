// The official TypeScript SDK's client at each of the odd servers that standard input lists as JSON.
// Writes what it got from each: "answer", "error CODE" or "nothing".
import { text } from "node:stream/consumers";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { McpError } from "@modelcontextprotocol/sdk/types.js";

const { servers, seconds } = JSON.parse(await text(process.stdin));
const options = { timeout: seconds * 1000 };
const MADE_UP = [-32000, -32001]; // closed, timed out

async function tryOut({ command, url }) {
  const client = new Client({ name: "odd", version: "1" });
  client.onerror = () => {};
  try {
    const transport = command
      ? new StdioClientTransport({ command: command[0], args: command.slice(1), stderr: "ignore" })
      : new StreamableHTTPClientTransport(new URL(url));
    await client.connect(transport, options);
    const { tools } = await client.listTools(undefined, options);
    await client.callTool({ name: tools[0].name, arguments: { word: "x" } }, undefined, options);
    return "answer";
  } catch (error) {
    const told = error instanceof McpError && !MADE_UP.includes(error.code);
    return told ? `error ${error.code}` : "nothing";
  } finally {
    await client.close().catch(() => {});
  }
}

process.on("unhandledRejection", () => {});
const verdicts = {};
const left = Object.entries(servers);
async function work() {
  for (let next = left.shift(); next; next = left.shift()) {
    const late = new Promise((settle) => setTimeout(settle, 2000 * seconds, "nothing")); // some never settle
    verdicts[next[0]] = await Promise.race([tryOut(next[1]), late]);
  }
}
await Promise.all(Array.from({ length: 12 }, work));
console.log(JSON.stringify(verdicts));
process.exit(0);
