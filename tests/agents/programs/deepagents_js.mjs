// A deep agent in JavaScript: `URL WAY TASK`.

import { ChatOpenAI } from "@langchain/openai";
import { createDeepAgent } from "deepagents";
import { tool } from "langchain";
import { description, name, readNote, schema, task, url } from "./notes.mjs";

const model = new ChatOpenAI({
  model: "any",
  apiKey: "none",
  configuration: { baseURL: `${url}/v1` },
  maxRetries: 0,
});
const tools = [tool(readNote, { name, description, schema })];
const agent = createDeepAgent({ model, tools, systemPrompt: "Be brief." });
const found = await agent.invoke(
  { messages: [{ role: "user", content: task }] },
  { recursionLimit: 50 },
);
console.log(found.messages.at(-1).text);
