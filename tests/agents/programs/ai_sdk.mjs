// Vercel's AI SDK, which streams, over the API that API names; `responseMessages` go back.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

let ran = 0;

const forecast = tool({
  description: "The weather forecast of a city.",
  inputSchema: z.object({ city: z.string(), days: z.number().int().default(1) }),
  execute: ({ city, days }) => {
    ran += 1;
    return `${city}: schön, 20 °C, ${days} days`;
  },
});

const models = {
  responses: () => createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: "none" })("any"),
  messages: () => createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1`, apiKey: "none" })("any"),
};
const messages = [];
const answers = [];
for (const question of JSON.parse(process.env.QUESTIONS)) {
  messages.push({ role: "user", content: question });
  const result = streamText({
    model: models[process.env.API](),
    instructions: "You tell the weather.",
    messages,
    tools: { forecast },
    stopWhen: stepCountIs(4),
    onError: ({ error }) => {
      throw error;
    },
  });
  messages.push(...(await result.responseMessages));
  answers.push(await result.text);
}

console.log(JSON.stringify({ ran, answers }));
