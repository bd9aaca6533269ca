import type { Stream } from "../../document/types";

/** The chunk policy in a few words: `4 at a time`, `window 8, every 4`. */
export function chunkText(stream: Stream): string {
  const { chunks } = stream;
  const first = "first" in chunks && chunks.first ? `, first ${chunks.first}` : "";
  if (chunks.policy === "fixed") return `${chunks.size} at a time${first}`;
  if (chunks.policy === "sliding") return `window ${chunks.window}, every ${chunks.stride}${first}`;
  if (chunks.policy === "left_context") return `${chunks.chunk} after ${chunks.context}${first}`;
  return "whole at the end";
}
