// The order of what a person's words find: every word counts where it fits best, and all of them in one text count too.
import fuzzysort from "fuzzysort";

/** A text of an entry, and how much a hit in it counts. */
export type Searched<T> = readonly [text: (entry: T) => string, weight: number];

interface Options<T> {
  texts: readonly Searched<T>[];
  /** What scores less isn't found. */
  least: number;
  most?: number;
  /** The score in the end. */
  adjust?: (score: number, entry: T) => number;
}

/** The entries that have all of the words, best first; equal ones keep their order. */
export function ranked<T>(
  entries: readonly T[],
  words: string,
  { texts, least, most = Infinity, adjust }: Options<T>,
): T[] {
  const each = words.trim().split(/\s+/);
  const found = entries.flatMap((entry) => {
    const best = (wanted: string) =>
      Math.max(...texts.map(([text, weight]) => (fuzzysort.single(wanted, text(entry))?.score ?? 0) * weight));
    const scores = each.map(best);
    if (scores.some((score) => score < least)) return [];
    const score = Math.max(scores.reduce((sum, one) => sum + one, 0) / scores.length, best(words));
    return [{ entry, score: adjust ? adjust(score, entry) : score }];
  });
  return found
    .toSorted((a, b) => b.score - a.score)
    .slice(0, most)
    .map(({ entry }) => entry);
}
