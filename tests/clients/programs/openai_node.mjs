// OpenAI's own client for Node, which streams; what `finalMessage()` gives goes back.

import OpenAI from "openai";

const tool = {
  type: "function",
  function: {
    name: "forecast",
    description: "The weather forecast of a place.",
    parameters: {
      type: "object",
      properties: {
        place: {
          type: "object",
          properties: {
            city: { type: "string", enum: ["Zürich", "Kraków", "São Paulo"] },
            unit: { type: "string", enum: ["°C", "°F"], default: "°C" },
          },
          required: ["city"],
        },
        height: { type: "number", description: "Metres above the sea." },
      },
      required: ["place", "height"],
    },
  },
};
let ran = 0;

function forecast({ place, height }) {
  ran += 1;
  return `${place.city}, ${height} m: schön, 20 ${place.unit ?? "°C"}`;
}

const choice = (word) =>
  ["required", "none", "auto"].includes(word) ? word : { type: "function", function: { name: word } };

const client = new OpenAI({ maxRetries: 0, timeout: 300_000 });
const messages = [{ role: "system", content: "You tell the weather. Be brief: “grüezi”." }];
for (const step of JSON.parse(process.env.PLAN)) {
  messages.push({ role: "user", content: step.question });
  for (const word of [step.first, step.then]) {
    const request = { model: "any", messages, tools: [tool], tool_choice: choice(word), parallel_tool_calls: true, max_tokens: 160 };
    const message = await client.chat.completions.stream(request).finalMessage();
    messages.push(message);
    for (const call of message.tool_calls ?? []) {
      if (call.function.name !== "forecast") throw new Error(`no tool of this client: ${JSON.stringify(call)}`);
      let content;
      try {
        content = forecast(JSON.parse(call.function.arguments));
      } catch (error) {
        content = `The arguments are no JSON: ${error}`;
      }
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
    if (!message.tool_calls?.length) break;
  }
}

console.log(JSON.stringify({ ran }));
