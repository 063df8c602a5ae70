// An agent of the Vercel AI SDK: `URL WAY TASK`, where WAY is a provider, and what it does not do by default.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ToolLoopAgent, tool } from "ai";
import { description, readNote, schema, task, url, way } from "./notes.mjs";

const at = { baseURL: `${url}/v1`, apiKey: "none" };
const models = {
  "responses": () => createOpenAI(at)("any"),
  "responses, store: false": () => createOpenAI(at)("any"),
  "chat": () => createOpenAI(at).chat("any"),
  "compatible": () => createOpenAICompatible({ name: "gateway", ...at })("any"),
  "anthropic": () => createAnthropic(at)("any"),
};
const agent = new ToolLoopAgent({
  model: models[way](),
  instructions: "Be brief.",
  tools: { read_note: tool({ description, inputSchema: schema, execute: readNote }) },
  providerOptions: { openai: way.endsWith("store: false") ? { store: false } : {} },
});
console.log((await agent.generate({ prompt: task })).text);
