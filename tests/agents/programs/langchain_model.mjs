// What runs an agent of LangChain in JavaScript, made by `create`.

import { ChatOpenAI } from "@langchain/openai";
import { tool } from "langchain";
import { description, name, readNote, schema, task, url } from "./notes.mjs";

export async function run(create) {
  const model = new ChatOpenAI({
    model: "any",
    apiKey: "none",
    configuration: { baseURL: `${url}/v1` },
    maxRetries: 0,
  });
  const tools = [tool(readNote, { name, description, schema })];
  const agent = create({ model, tools, systemPrompt: "Be brief." });
  const found = await agent.invoke(
    { messages: [{ role: "user", content: task }] },
    { recursionLimit: 50 },
  );
  console.log(found.messages.at(-1).text);
}
