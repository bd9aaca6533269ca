// The order of what a person's words find: every word counts where it fits best, and all of them in one text count too.
// Who writes the whole of a text means its entry.
import fuzzysort from "fuzzysort";

/** A text of an entry, and how much a hit in it counts. */
export type Searched<T> = readonly [text: (entry: T) => string, weight: number];

interface Options<T> {
  texts: readonly Searched<T>[];
  /** The least score of what is found. */
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
  const whole = plain(words);
  const found = entries.flatMap((entry) => {
    const best = (wanted: string) =>
      Math.max(...texts.map(([text, weight]) => (fuzzysort.single(wanted, text(entry))?.score ?? 0) * weight));
    const scores = each.map(best);
    if (scores.some((score) => score < least)) return [];
    const mean = scores.reduce((sum, one) => sum + one, 0) / scores.length;
    const wholes = texts.filter(([text]) => plain(text(entry)) === whole).map(([, weight]) => wholeScore(weight));
    const score = Math.max(mean, best(words), ...wholes);
    return [{ entry, score: adjust ? adjust(score, entry) : score }];
  });
  return found
    .toSorted((a, b) => b.score - a.score)
    .slice(0, most)
    .map(({ entry }) => entry);
}

/** Above what parts of a text score, and still in the order of the weights. */
function wholeScore(weight: number): number {
  return 0.95 + 0.05 * weight;
}

function plain(text: string): string {
  return text.trim().replace(/\.$/, "").toLowerCase();
}
