// Vercel's AI SDK with its provider for servers of OpenAI's shape, which streams; `response.messages` go back.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

let ran = 0;

const forecast = tool({
  description: "The weather forecast of a place.",
  inputSchema: z.object({
    place: z.object({
      city: z.string().meta({ enum: ["Zürich", "Kraków", "São Paulo"] }),
      unit: z.string().meta({ enum: ["°C", "°F"] }).default("°C"),
    }),
    height: z.number(),
  }),
  execute: ({ place, height }) => {
    ran += 1;
    return `${place.city}, ${height} m: schön, 20 ${place.unit}`;
  },
});

const choice = (word) => (["required", "none", "auto"].includes(word) ? word : { type: "tool", toolName: word });

const provider = createOpenAICompatible({ name: "any", baseURL: process.env.OPENAI_BASE_URL, apiKey: "none" });
const messages = [];
for (const step of JSON.parse(process.env.PLAN)) {
  messages.push({ role: "user", content: step.question });
  const result = streamText({
    model: provider("any"),
    system: "You tell the weather. Be brief: “grüezi”.",
    messages,
    tools: { forecast },
    prepareStep: ({ stepNumber }) => ({ toolChoice: choice(stepNumber === 0 ? step.first : step.then) }),
    stopWhen: stepCountIs(2),
    providerOptions: { any: { parallel_tool_calls: true } },
    maxOutputTokens: 160,
    maxRetries: 0,
    onError: ({ error }) => {
      throw error;
    },
  });
  messages.push(...(await result.response).messages);
}

console.log(JSON.stringify({ ran }));
