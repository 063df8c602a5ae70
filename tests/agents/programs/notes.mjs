// The tool `read_note`, and the arguments that every program gets: `URL WAY TASK`.

import { readFileSync } from "node:fs";
import { z } from "zod";

export const [url, way, task] = process.argv.slice(2);
export const name = "read_note";
export const description = "Read the first lines of a note.";
export const schema = z.object({ path: z.string(), lines: z.number().int() });

/** Read the first lines of a note. */
export function readNote({ path, lines }) {
  return readFileSync(path, "utf8").split(/(?<=\n)/).slice(0, lines).join("");
}
