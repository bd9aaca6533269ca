import { describe, expect, it } from "vitest";
import { ranked } from "../../src/ui/search";

const ENTRIES = [
  ["picture_batch/describe", "Describe one picture"],
  ["bagel.vit", "Encodes a picture's patches as embeddings of the backbone's width."],
  ["media.picture_in", "Decodes a picture, fits its sides between two bounds and rounds them."],
  ["shapes/image_to_text", "Describe a picture"],
  ["shapes/text_to_image", "Draw from a caption"],
] as const;
const find = (words: string, adjust?: (score: number, entry: readonly [string, string]) => number) =>
  ranked(ENTRIES, words, {
    texts: [
      [([name]) => name, 1],
      [([, note]) => note, 0.6],
    ],
    least: 0.2,
    ...(adjust && { adjust }),
  }).map(([name]) => name);

describe("what words find", () => {
  it("has the entry first whose own words they are", () => {
    expect(find("describe a picture")[0]).toBe("shapes/image_to_text");
    expect(find("draw from a caption")[0]).toBe("shapes/text_to_image");
  });

  it("has all of the words, in any text and order", () => {
    expect(find("caption shapes")).toEqual(["shapes/text_to_image"]);
    expect(find("caption vit")).toEqual([]);
  });

  it("has names before notes, and can be adjusted", () => {
    expect(find("picture").slice(0, 1)).toEqual(["media.picture_in"]);
    expect(find("picture", (score, [name]) => (name === "bagel.vit" ? 2 : score))[0]).toBe("bagel.vit");
  });
});
