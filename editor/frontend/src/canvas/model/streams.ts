import type { Stream } from "../../document/types";
import { strings } from "../../strings";

/** The chunk policy in a few words: `4 at a time`, `window 8, every 4`. */
export function chunkText(stream: Stream): string {
  const { chunks } = stream;
  const first = "first" in chunks && chunks.first ? strings.canvas.first(chunks.first) : "";
  if (chunks.policy === "fixed") return strings.canvas.atATime(chunks.size, first);
  if (chunks.policy === "sliding") return strings.canvas.windowEvery(chunks.window, chunks.stride, first);
  if (chunks.policy === "left_context") return strings.canvas.withOfContext(chunks.chunk, chunks.context, first);
  return strings.canvas.everythingAtTheEnd;
}
