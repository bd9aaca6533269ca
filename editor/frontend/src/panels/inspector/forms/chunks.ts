// How a stream is cut into chunks: the arithmetic of `walkgraph.chunking`, for the picture in the inspector.
import type { ChunkPolicy } from "../../../document/types";
import { strings } from "../../../strings";

/** Items `[start, stop)` of the stream, of which the first `context` were delivered before. */
export interface Chunk {
  index: number;
  start: number;
  stop: number;
  context: number;
  first: boolean;
  /** It tells the end; it has new items only where some are left over. */
  last: boolean;
  absent: boolean;
}

interface Rule {
  /** New items of a chunk that is neither first nor last; null: all there are. */
  step: number | null;
  /** Items of the first chunk. */
  opening: number;
  start(taken: number, stop: number): number;
}

/** The fault of a policy's numbers, or null. */
export function whyNotPolicy(policy: ChunkPolicy): string | null {
  const whole = (value: unknown, least: number) => Number.isInteger(value) && (value as number) >= least;
  const numbers: [string, unknown, number][] =
    policy.policy === "fixed"
      ? [["size", policy.size, 1]]
      : policy.policy === "sliding"
        ? [
            ["window", policy.window, 1],
            ["stride", policy.stride, 1],
          ]
        : policy.policy === "left_context"
          ? [
              ["chunk", policy.chunk, 1],
              ["context", policy.context, 0],
            ]
          : [];
  const bad = numbers.find(([, value, least]) => !whole(value, least));
  if (bad) return strings.inspector.mustBeAWholeNumber(bad[0], bad[2]);
  if (policy.policy === "sliding" && policy.stride > policy.window)
    return strings.inspector.strideIsOverWindowItems(policy.stride, policy.window);
  if (policy.policy !== "whole" && policy.first != null) {
    const { opening } = ruleOf({ ...policy, first: null });
    if (!whole(policy.first, 1) || policy.first > opening) return strings.inspector.firstMustBe1(opening);
  }
  return null;
}

/** The chunks of a stream of `items` items, all there and ended; at most `limit` of them. */
export function chunksOf(policy: ChunkPolicy, items: number, limit = 64): Chunk[] {
  const rule = ruleOf(policy);
  const chunks: Chunk[] = [];
  let previous: Chunk | null = null;
  while (chunks.length < limit) {
    const over: boolean = previous !== null && (previous.last || previous.absent);
    const index = chunks.length;
    if (over) {
      if (policy.policy !== "fixed" || !policy.continue_after_done) break;
      previous = { index, start: items, stop: items, context: 0, first: false, last: false, absent: true };
    } else {
      const taken: number = previous?.stop ?? 0;
      const full: number = previous === null ? rule.opening : taken + (rule.step ?? Infinity);
      const stop = Math.min(full, items);
      const start = rule.start(taken, stop);
      previous = {
        index,
        start,
        stop,
        context: taken - start,
        first: index === 0,
        last: full > items,
        absent: false,
      };
    }
    chunks.push(previous);
  }
  return chunks;
}

function ruleOf(policy: ChunkPolicy): Rule {
  switch (policy.policy) {
    case "fixed":
      return { step: policy.size, opening: policy.first ?? policy.size, start: (taken) => taken };
    case "sliding":
      return {
        step: policy.stride,
        opening: policy.first ?? policy.window,
        start: (_taken, stop) => Math.max(0, stop - policy.window),
      };
    case "left_context":
      return {
        step: policy.chunk,
        opening: policy.first ?? policy.chunk,
        start: (taken) => Math.max(0, taken - policy.context),
      };
    case "whole":
      return { step: null, opening: Infinity, start: () => 0 };
  }
}

/** One sentence that explains a policy. */
export function policyText(policy: ChunkPolicy): string {
  switch (policy.policy) {
    case "fixed":
      return policy.size === 1
        ? strings.inspector.eachItemIsAChunk
        : strings.inspector.everyItemsMakeAChunk(policy.size);
    case "sliding":
      return strings.inspector.theLastAgainAfterEvery(
        many(policy.window, "item"),
        many(policy.stride, strings.inspector.newItem),
      );
    case "left_context":
      return strings.inspector.everyWithUpToBefore(many(policy.chunk, strings.inspector.newItem), policy.context);
    case "whole":
      return strings.inspector.everythingAtOnceWhen;
  }
}

function many(count: number, noun: string): string {
  return count === 1 ? noun : `${count} ${noun}s`;
}
