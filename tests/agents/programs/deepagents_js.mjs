// A deep agent in JavaScript: `URL WAY TASK`.

import { createDeepAgent } from "deepagents";
import { run } from "./langchain_model.mjs";

await run(createDeepAgent);
