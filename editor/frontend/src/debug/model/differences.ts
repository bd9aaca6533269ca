// Differences between two runs: the service's answer, judged and grouped for display. Pure.
import { figure } from "../../taps/looks";
import type { Statistics } from "../../messages/frames";
import { plural } from "../../ui/words";
import { lexical, placeOfCall } from "./calls";
import { strings } from "../../strings";

/** One value that differs; what only one run has is left out of the other's fields. */
export interface Row {
  walk: string;
  source: string;
  step: number;
  iteration: number[];
  rank_a: number;
  rank_b: number;
  shape_a: number[];
  shape_b: number[];
  dtype_a: string;
  dtype_b: string;
  statistics_a: Statistics | null;
  statistics_b: Statistics | null;
  /** Over the numbers that were picked; null: they can't be compared, or are not finite. */
  max_abs: number | null;
  max_rel: number | null;
  at_a: number;
  at_b: number;
}

export interface OutputDifference {
  name: string;
  index: number;
  equal: boolean;
  max_abs: number | null;
}

/** `GET /runs/{a}/differences/{b}`. */
export interface Differences {
  a: string;
  b: string;
  /** false: neither run was recorded, outputs alone are compared. */
  recorded?: boolean;
  compared: number;
  equal: number;
  /** Values that one run has and the other hasn't. */
  missing: { a: number; b: number };
  outputs: OutputDifference[];
  /** The first in time. */
  first: Row | null;
  /** At most 500. */
  rows: Row[];
}

export interface Verdict {
  kind: "good" | "warn" | "bad";
  title: string;
  detail: string;
}

export function verdictOf(found: Differences): Verdict {
  const unequal = found.outputs.filter((output) => !output.equal);
  const outputs = outputWords(found.outputs.length, unequal.length);
  if (found.recorded === false)
    return {
      kind: unequal.length ? "bad" : "good",
      title: unequal.length
        ? strings.debug.theOutputsDiffer
        : found.outputs.length
          ? strings.debug.theOutputsAreIdentical
          : strings.debug.nothingToCompare,
      detail: strings.debug.neitherRunWasRecorded(outputs),
    };
  const lacking = missingWords(found.missing);
  const differ = found.compared - found.equal;
  if (differ === 0 && unequal.length === 0 && !lacking)
    return { kind: "good", title: strings.debug.identical(plural(found.compared, "value")), detail: outputs };
  const values = differ
    ? strings.debug.ofDiffer(differ, plural(found.compared, "value"))
    : strings.debug.allPresentInBothRuns(plural(found.compared, "value"));
  const detail = [values, lacking, outputs].filter(Boolean).join(" ");
  if (unequal.length === 0)
    return { kind: "warn", title: strings.debug.identicalOutputsDifferentIntermediate, detail };
  return { kind: "bad", title: strings.debug.theRunsDiffer, detail };
}

function outputWords(all: number, unequal: number): string {
  if (all === 0) return strings.debug.noOutputsWereKept;
  if (unequal === 0) return strings.debug.identicalBitForBit(plural(all, "output"));
  return strings.debug.ofWithValue(unequal, plural(all, "output"), unequal === 1 ? "differs" : "differ");
}

function missingWords({ a, b }: Differences["missing"]): string {
  const parts = [
    a && strings.debug.onlyTheSecondRunHas(plural(a, "value")),
    b && strings.debug.onlyTheFirstHas(plural(b, "value")),
  ];
  const words = parts.filter(Boolean).join(", ");
  return words ? `${words}.` : "";
}

/** Where the runs part, in a sentence; names stand in backticks. */
export function firstWords(row: Row): string {
  const where = placeOfCall({ walk: row.walk, step: row.step, iteration: row.iteration, rank: row.rank_a }, false);
  return strings.debug.firstDifferent(row.source, where, aboutRow(row));
}

/** How far apart the two values are. */
export function aboutRow(row: Row): string {
  if (row.dtype_a !== row.dtype_b) return strings.debug.became(row.dtype_a || "nothing", row.dtype_b || "nothing");
  if (row.shape_a.join() !== row.shape_b.join())
    return `[${row.shape_a.join(", ")}] became [${row.shape_b.join(", ")}]`;
  if (row.max_abs === null) return strings.debug.itsContentDiffers;
  if (row.max_abs === 0) return strings.debug.theSampledNumbersAreEqual;
  const relative = row.max_rel === null ? "" : strings.debug.relative(figure(row.max_rel));
  return strings.debug.differsByUpWithRelative(figure(row.max_abs), relative);
}

/** All that differs of one place, over its iterations. */
export interface Group {
  key: string;
  walk: string;
  source: string;
  /** By step and iteration. */
  rows: Row[];
  /** Largest; null where no row tells. */
  max_abs: number | null;
}

/** In the order of their first differences. */
export function groupsOf(rows: readonly Row[]): Group[] {
  const found = new Map<string, Group>();
  for (const row of rows) {
    const key = `${row.walk} ${row.source}`;
    const group = found.get(key) ?? { key, walk: row.walk, source: row.source, rows: [], max_abs: null };
    found.set(key, group);
    group.rows.push(row);
    if (row.max_abs !== null) group.max_abs = Math.max(group.max_abs ?? 0, row.max_abs);
  }
  for (const group of found.values())
    group.rows.sort((a, b) => a.step - b.step || lexical(a.iteration, b.iteration) || a.at_a - b.at_a);
  return [...found.values()];
}

/** Heights of the bars that draw a group's rows, 0 to 1: differences span many powers of ten. */
export function heightsOf(rows: readonly Row[]): number[] {
  const sizes = rows.map((row) => row.max_abs).filter((size): size is number => size !== null && size > 0);
  const low = Math.log10(Math.min(...sizes));
  const high = Math.log10(Math.max(...sizes));
  return rows.map(({ max_abs }) => {
    if (max_abs === null) return 1;
    if (max_abs === 0) return 0.08;
    return high > low ? 0.2 + (0.8 * (Math.log10(max_abs) - low)) / (high - low) : 0.6;
  });
}
