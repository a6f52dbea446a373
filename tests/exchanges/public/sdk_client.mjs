// The official TypeScript SDK's client: reads servers by name from standard input, each with its call, and writes what
// each listed, and what came of the call, as JSON.
import { text } from "node:stream/consumers";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { McpError } from "@modelcontextprotocol/sdk/types.js";

const options = { timeout: 120_000 };

async function listed(listing, items) {
  try {
    return (await listing())[items];
  } catch (error) {
    if (!(error instanceof McpError)) throw error;
    return { error: error.code };
  }
}

async function tried(name, server) {
  const client = new Client({ name: "public", version: "1" });
  const env = { HOME: process.env.HOME, PATH: process.env.PATH, ...server.env };
  const transport = server.url
    ? new StreamableHTTPClientTransport(new URL(server.url))
    : new StdioClientTransport({ command: server.command, args: server.args, env, stderr: "ignore" });
  try {
    await client.connect(transport, options);
    const said = {
      tools: await listed(() => client.listTools(undefined, options), "tools"),
      prompts: await listed(() => client.listPrompts(undefined, options), "prompts"),
      resources: await listed(() => client.listResources(undefined, options), "resources"),
      templates: await listed(() => client.listResourceTemplates(undefined, options), "resourceTemplates"),
    };
    const wanted = [server.tool, `${name}__${server.tool}`];
    const tool = said.tools.find((each) => wanted.includes(each.name)).name;
    try {
      said.call = await client.callTool({ name: tool, arguments: server.arguments }, undefined, options);
    } catch (error) {
      said.call = { error: { code: error.code, message: error.message } };
    }
    return said;
  } finally {
    await client.close();
  }
}

const said = {};
for (const [name, server] of Object.entries(JSON.parse(await text(process.stdin)))) {
  said[name] = await tried(name, server).catch((error) => ({ failed: String(error) }));
}
process.stdout.write(JSON.stringify(said), () => process.exit(0)); // not before all of it is written
