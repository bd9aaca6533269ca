// Differences between two runs: a verdict, the first difference, and every place that differs over its iterations.
import { ChevronRight } from "lucide-react";
import { useMemo, useState } from "react";
import { go } from "../store/locate";
import { useEditor, useEditorState } from "../store/react";
import { figure, typeWords } from "../taps/looks";
import { Badge, Prose } from "../ui/kit";
import { Table } from "../ui/Table";
import { plural } from "../ui/words";
import { locateSource, showIteration } from "./model/calls";
import {
  aboutRow,
  firstWords,
  groupsOf,
  heightsOf,
  verdictOf,
  type Differences,
  type Group,
  type OutputDifference,
  type Row,
} from "./model/differences";
import type { Comparison } from "./model/state";
import { strings } from "../strings";

/** The service tells no more rows than this. */
const MOST_ROWS = 500;
const SHOWN_BARS = 120;

export function DifferencesPane({ comparison, alone }: { comparison: Comparison; alone: boolean }) {
  switch (comparison.phase) {
    case "working":
      return (
        <p className="wg-dock-quiet busy" role="status">
          {comparison.words}
        </p>
      );
    case "failed":
      return (
        <p className="wg-dock-quiet bad" role="alert">
          <Prose text={comparison.message} />
        </p>
      );
    case "shown":
      return <Found found={comparison.value} alone={alone} />;
  }
}

function Found({ found, alone }: { found: Differences; alone: boolean }) {
  const verdict = verdictOf(found);
  const groups = useMemo(() => groupsOf(found.rows), [found.rows]);
  const unequal = found.outputs.filter((output) => !output.equal);
  return (
    <div className="wg-differences">
      <div className="verdict" role="status">
        <Badge kind={verdict.kind}>{verdict.title}</Badge>
        <span>{verdict.detail}</span>
        <span className="runs">
          <code title={found.a}>{found.a.slice(0, 8)}</code> {strings.debug.and}{" "}
          <code title={found.b}>{found.b.slice(0, 8)}</code>
        </span>
      </div>
      {found.first && <First row={found.first} alone={alone} />}
      {unequal.length > 0 && <Outputs outputs={unequal} />}
      {groups.length > 0 && <Groups groups={groups} rows={found.rows.length} alone={alone} />}
    </div>
  );
}

/** The place, as a way to it where the open graph has it. */
function Source({ walk, source, alone }: { walk: string; source: string; alone: boolean }) {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const place = alone ? null : locateSource(graph, walk, source);
  if (!place) return <code>{source}</code>;
  return (
    <button
      type="button"
      className="wg-dock-link"
      title={strings.debug.showItOnTheCanvas}
      onClick={() => go(editor, place)}
    >
      <code>{source}</code>
    </button>
  );
}

function First({ row, alone }: { row: Row; alone: boolean }) {
  return (
    <section className="first" aria-label={strings.debug.theFirstDifference}>
      <p>
        <Prose text={firstWords(row)} /> {!alone && <Shown walk={row.walk} source={row.source} />}
      </p>
      <Beside row={row} />
    </section>
  );
}

function Shown({ walk, source }: { walk: string; source: string }) {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const place = locateSource(graph, walk, source);
  if (!place) return null;
  return (
    <button type="button" className="wg-dock-link" onClick={() => go(editor, place)}>
      {strings.debug.showTheEdge}
    </button>
  );
}

/** Statistics of both, line by line. */
function Beside({ row }: { row: Row }) {
  const { statistics_a: a, statistics_b: b } = row;
  const lines: [string, string, string][] = [
    [
      "type",
      typeWords({ dtype: row.dtype_a, shape: row.shape_a }),
      typeWords({ dtype: row.dtype_b, shape: row.shape_b }),
    ],
    ...(["mean", "std", "low", "high"] as const).map((name): [string, string, string] => [
      { mean: "mean", std: "spread", low: "least", high: "most" }[name],
      figure(a?.[name] ?? null),
      figure(b?.[name] ?? null),
    ]),
    [strings.debug.notFinite, notFinite(a), notFinite(b)],
  ];
  return (
    <Table
      className="wg-table beside"
      columns={[{}, strings.debug.firstRank(row.rank_a), strings.debug.secondRank(row.rank_b)]}
    >
      <tbody>
        {lines.map(([name, left, right]) => (
          <tr key={name} className={left === right ? "" : "other"}>
            <th scope="row">{name}</th>
            <td>{left}</td>
            <td>{right}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function notFinite(statistics: Row["statistics_a"]): string {
  return statistics ? String(statistics.nan + statistics.infinite) : "–";
}

function Outputs({ outputs }: { outputs: readonly OutputDifference[] }) {
  return (
    <section aria-label={strings.debug.outputsThatDiffer}>
      <h3>{strings.debug.outputs}</h3>
      <ul>
        {outputs.map(({ name, index, max_abs }) => (
          <li key={`${name} ${index}`}>
            <code>{name}</code> {index + 1}:{" "}
            {max_abs === null ? strings.debug.contentDiffers : strings.debug.differsByUp(figure(max_abs))}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Groups({ groups, rows, alone }: { groups: readonly Group[]; rows: number; alone: boolean }) {
  return (
    <section className="all" aria-label={strings.debug.placesThatDiffer}>
      <h3>
        {strings.debug.inTheOrder(plural(groups.length, "place"))}
        {rows >= MOST_ROWS && strings.debug.theFirstValues(MOST_ROWS)}
      </h3>
      <Table
        className="wg-table places"
        columns={[
          strings.debug.values,
          strings.debug.inWalk,
          strings.debug.differ,
          strings.debug.byIteration,
          { className: "number", children: strings.debug.largestDifference },
        ]}
      >
        {groups.map((group) => (
          <GroupRows key={group.key} group={group} alone={alone} />
        ))}
      </Table>
    </section>
  );
}

function GroupRows({ group, alone }: { group: Group; alone: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <tbody>
      <tr>
        <td>
          <button
            type="button"
            className="fold"
            aria-expanded={open}
            aria-label={strings.debug.theValues(open ? strings.debug.hide : strings.debug.show, group.source)}
            onClick={() => setOpen(!open)}
          >
            <ChevronRight size={13} className={open ? "open" : ""} aria-hidden />
          </button>
          <Source walk={group.walk} source={group.source} alone={alone} />
        </td>
        <td>{group.walk}</td>
        <td>{plural(group.rows.length, "value")}</td>
        <td>
          <Bars rows={group.rows} />
        </td>
        <td className="number">{figure(group.max_abs)}</td>
      </tr>
      {open &&
        group.rows.map((row, index) => (
          <tr key={index} className="value">
            <td colSpan={2}>
              {strings.debug.step(row.step + 1)}
              {row.iteration.length > 0 && strings.debug.iteration(showIteration(row.iteration))}
            </td>
            <td colSpan={2}>{aboutRow(row)}</td>
            <td className="number">{figure(row.max_abs)}</td>
          </tr>
        ))}
    </tbody>
  );
}

/** How far apart the values are, iteration by iteration, in powers of ten. */
function Bars({ rows }: { rows: readonly Row[] }) {
  const shown = rows.slice(0, SHOWN_BARS);
  const heights = heightsOf(shown);
  const width = 4;
  return (
    <svg
      className="bars"
      width={Math.max(1, shown.length) * width}
      height={18}
      role="img"
      aria-label={strings.debug.differenceOver(plural(rows.length, "value"))}
    >
      {shown.map((row, index) => (
        <rect
          key={index}
          x={index * width}
          y={18 - heights[index]! * 18}
          width={width - 1}
          height={heights[index]! * 18}
        >
          <title>
            {strings.debug.stepWithRow(
              row.step + 1,
              row.iteration.length ? strings.debug.iteration(showIteration(row.iteration)) : "",
              aboutRow(row),
            )}
          </title>
        </rect>
      ))}
    </svg>
  );
}
