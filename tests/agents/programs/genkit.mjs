// A generation with tools of Genkit: `URL WAY TASK`.

import { openAICompatible } from "@genkit-ai/compat-oai";
import { genkit } from "genkit";
import { description, name, readNote, schema, task, url } from "./notes.mjs";

const gateway = openAICompatible({ name: "gateway", baseURL: `${url}/v1`, apiKey: "none" });
const ai = genkit({ plugins: [gateway], model: "gateway/any" });
const tool = ai.defineTool({ name, description, inputSchema: schema }, async (input) => readNote(input));
const found = await ai.generate({ system: "Be brief.", prompt: task, tools: [tool], maxTurns: 20 });
console.log(found.text);
