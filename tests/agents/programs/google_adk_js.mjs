// An agent of Google's Agent Development Kit in JavaScript: `URL WAY TASK`; the environment says where the model is.

import { FunctionTool, InMemoryRunner, LlmAgent } from "@google/adk";
import { description, name, readNote, schema, task } from "./notes.mjs";

const agent = new LlmAgent({
  name: "reader",
  model: "gemini-any",
  instruction: "Be brief.",
  tools: [new FunctionTool({ name, description, parameters: schema, execute: readNote })],
});
const newMessage = { role: "user", parts: [{ text: task }] };
for await (const event of new InMemoryRunner({ agent }).runEphemeral({ userId: "reader", newMessage })) {
  console.log(JSON.stringify(event.content ?? event));
}
