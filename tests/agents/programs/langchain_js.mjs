// An agent of LangChain in JavaScript: `URL WAY TASK`.

import { createAgent } from "langchain";
import { run } from "./langchain_model.mjs";

await run(createAgent);
