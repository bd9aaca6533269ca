import { describe, expect, it } from "vitest";
import type { ChunkPolicy } from "../../src/document/types";
import { chunksOf, whyNotPolicy } from "../../src/panels/inspector/forms/chunks";
// Results of `walkgraph.chunking` for the same policies, with all items and the end of the stream; 8 chunks at most.
import golden from "./chunks.golden.json";

describe("chunks", () => {
  it.each(golden.map((entry) => [JSON.stringify(entry.policy), entry.items, entry] as const))(
    "%s of %i items are those of the runtime",
    (_policy, items, entry) => {
      expect(chunksOf(entry.policy as ChunkPolicy, items, 8)).toEqual(entry.chunks);
    },
  );

  it("says what is wrong with the numbers", () => {
    expect(whyNotPolicy({ policy: "sliding", window: 2, stride: 3 })).toContain("lost");
    expect(whyNotPolicy({ policy: "fixed", size: 0 })).toContain("size");
    expect(whyNotPolicy({ policy: "left_context", chunk: 2, context: 0, first: 3 })).toContain("1 to 2");
    expect(whyNotPolicy({ policy: "sliding", window: 4, stride: 2, first: 4 })).toBeNull();
    expect(whyNotPolicy({ policy: "whole" })).toBeNull();
  });
});
