// An agent of the OpenAI Agents SDK in JavaScript: `URL WAY TASK`, where WAY is chat or responses.

import * as sdk from "@openai/agents";
import OpenAI from "openai";
import { description, name, readNote, schema, task, url, way } from "./notes.mjs";

const models = { chat: sdk.OpenAIChatCompletionsModel, responses: sdk.OpenAIResponsesModel };
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
sdk.setTracingDisabled(true);
const agent = new sdk.Agent({
  name: "reader",
  instructions: "Be brief.",
  tools: [sdk.tool({ name, description, parameters: schema, execute: readNote })],
  model: new models[way](client, "any"),
});
console.log((await sdk.run(agent, task, { maxTurns: 20 })).finalOutput);
