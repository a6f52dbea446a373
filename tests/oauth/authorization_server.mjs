// A real authorization server (oidc-provider) for tests: port, the MCP servers that it issues tokens for.
// Access tokens live 5 s. A client metadata document is read from this file instead of the network.
import { Provider } from "oidc-provider";

const [port, ...resources] = process.argv.slice(2);
const document = process.env.CLIENT_DOCUMENT ? JSON.parse(process.env.CLIENT_DOCUMENT) : null;

const provider = new Provider(`http://127.0.0.1:${port}`, {
  scopes: ["openid", "offline_access", "read", "write"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resources[0],
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, indicator) => {
        if (!resources.includes(indicator)) throw new Error("no such resource");
        return { scope: "read write", audience: indicator, accessTokenFormat: "jwt", accessTokenTTL: 5 };
      },
    },
  },
  fetch: async (url) =>
    document !== null && String(url) === document.client_id
      ? new Response(JSON.stringify(document), { headers: { "content-type": "application/json" } })
      : new Response("", { status: 404 }),
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
});
let refreshes = 0;
provider.on("grant.success", (ctx) => {
  if (ctx.oidc.params.grant_type === "refresh_token") console.log(`refreshed ${++refreshes}`);
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
