// The run under way, or the last one: how it stands, what it made, where its time went.
import { ChartGantt, Crosshair, RotateCw, TriangleAlert } from "lucide-react";
import { useEffect, useState, type ReactNode } from "react";
import { FailedInputs } from "../debug/FailedInputs";
import { RunMark } from "../debug/marks";
import type { Standing } from "../session/queue";
import { Badge, Button, Prose } from "../ui/kit";
import { Table } from "../ui/Table";
import { useLatest } from "../telemetry/activity";
import { endWords, insideWords, playedWords, showSeconds } from "../ui/words";
import { ApprovalForm } from "./outputs/ApprovalForm";
import { Facts, isFact } from "./outputs/Facts";
import { MuteButton, OutputView, PictureFrame } from "./outputs/outputs";
import { isOver, PREVIEW } from "./model/results";
import type { Made, OutputShown, Result, RunError, TaskShown } from "./model/types";
import type { Use } from "./outputs/UseButton";
import { adviceFor, placeOf, whyNothing } from "./model/words";
import { strings } from "../strings";

interface Props {
  task: TaskShown | null;
  result: Result;
  /** In the queue; null: it isn't known there, as where it is over. */
  standing: Standing | null;
  muted: boolean;
  onMute: (muted: boolean) => void;
  onSave: (output: OutputShown, made: Made) => void;
  uses: readonly Use[];
  onSameSeed: () => void;
  /** The same once more, with all of its values kept. */
  onRecord: () => void;
  /** null: no graph is open. */
  onCanvas: (() => void) | null;
  /** null: there is no page of traces beside this one. */
  onTrace: (() => void) | null;
  /** Opens the node in the graph. */
  onNode: ((node: string) => void) | null;
}

export function ResultPane({ task, result, standing, muted, onMute, onSave, uses, ...on }: Props) {
  const { onSameSeed, onRecord, onCanvas, onTrace, onNode } = on;
  const over = isOver(result);
  const outputs = ordered(task, result);
  const preview = outputs.find((output) => output.name === PREVIEW && isPicture(output)) ?? null;
  const finals = outputs.find((output) => output.name !== PREVIEW && isPicture(output)) ?? null;
  const shared = preview !== null;
  const others = outputs.filter((output) => !shared || (output !== preview && output !== finals));
  const facts = others.filter(isFact);
  const sounds = outputs.some((output) => output.made[0]?.value.type === "audio");
  return (
    <div className="wg-play-result">
      <div className="status" role="status">
        <State result={result} standing={standing} />
        <Figures result={result} standing={standing} />
        {!over && <Now run={result.run} />}
        {!over && result.run !== null && <RunMark deployment={result.deployment} run={result.run} />}
        <div className="doing">
          {sounds && !over && <MuteButton muted={muted} onChange={onMute} />}
          {over && result.seed !== null && (
            <Button kind="quiet" title={strings.play.runAgainWithTheseInputs} onClick={onSameSeed}>
              <RotateCw size={13} aria-hidden /> {strings.play.sameSeed}
            </Button>
          )}
          {over && result.run !== null && onCanvas && (
            <Button kind="quiet" title={strings.play.showThisRunsFigures} onClick={onCanvas}>
              <Crosshair size={13} aria-hidden /> {strings.play.onTheGraph}
            </Button>
          )}
          {over && result.run !== null && onTrace && (
            <Button kind="quiet" title={strings.play.whenEachCallRan} onClick={onTrace}>
              <ChartGantt size={13} aria-hidden /> {strings.play.trace}
            </Button>
          )}
        </div>
      </div>
      <Unknown words={result.usage?.unknown_words ?? []} />
      {result.error && result.state === "failed" && (
        <Failure result={result} error={result.error} onRecord={onRecord} onNode={onNode} />
      )}
      {result.approval && result.run !== null && (
        <ApprovalForm key={result.approval.number} run={result.run} approval={result.approval} />
      )}
      {shared && (
        <PictureFrame
          key={result.startedAt}
          previews={preview}
          finals={finals}
          over={over}
          onSave={onSave}
          uses={uses}
        />
      )}
      {others.map((output) =>
        facts.includes(output) ? (
          output === facts[0] && <Facts key="facts" outputs={facts} />
        ) : (
          <OutputView
            key={`${result.startedAt} ${output.name}`}
            output={output}
            over={over}
            onSave={onSave}
            uses={uses}
          />
        ),
      )}
      {outputs.length === 0 && !over && <div className="wg-play-skeleton" aria-hidden />}
      {outputs.length === 0 && result.state === "cancelled" && (
        <p className="wg-play-hint">{strings.play.itWasStoppedBefore}</p>
      )}
      {outputs.length === 0 && result.state === "done" && <p className="wg-play-hint">{whyNothing(task, result)}</p>}
      {over && result.times.length > 0 && <Times result={result} onNode={onNode} />}
    </div>
  );
}

function isPicture(output: OutputShown): boolean {
  return output.made[0]?.value.type === "image";
}

/** As the task declares them. */
function ordered(task: TaskShown | null, result: Result): OutputShown[] {
  const place = (name: string) => task?.outputs.indexOf(name) ?? 0;
  return Object.values(result.outputs).sort((a, b) => place(a.name) - place(b.name));
}

const STATES: Record<Result["state"], [kind: string, words: string]> = {
  sending: ["busy", strings.play.sending],
  waiting: ["busy", strings.play.waiting],
  running: ["busy", strings.play.running],
  asked: ["warn", strings.play.waitsForAPerson],
  done: ["good", strings.play.done],
  cancelled: ["warn", strings.play.stopped],
  failed: ["bad", strings.play.failed],
};

interface Stands {
  result: Result;
  standing: Standing | null;
}

function State({ result, standing }: Stands) {
  // Before its first output, a run is at work unless the queue has it.
  const waits = result.state === "waiting" && standing?.state === "waiting";
  const [kind, words] = STATES[result.state === "waiting" && !waits ? "running" : result.state];
  return <Badge kind={kind}>{words}</Badge>;
}

function Figures({ result, standing }: Stands) {
  const over = isOver(result);
  const figures: [string, ReactNode][] = [];
  if (!over && standing?.place) figures.push([strings.play.queue.toLowerCase(), standing.place]);
  figures.push([
    "time",
    over ? result.seconds === null ? "–" : showSeconds(result.seconds) : <Elapsed key="t" from={result.startedAt} />,
  ]);
  // Measured here, with the way over the network; of a very short run it says nothing.
  const first = result.firstOutputAt === null ? null : result.firstOutputAt / 1000;
  if (first !== null && first < (result.seconds ?? Infinity))
    figures.push([strings.play.firstOutput, showSeconds(first)]);
  if (over && result.queued !== null && result.queued >= 0.001) figures.push(["queued", showSeconds(result.queued)]);
  const { usage } = result;
  if (usage && usage.read > 0)
    figures.push([strings.play.read, strings.play.tokensOfThemCached(usage.read, usage.cached_tokens)]);
  const cut = (usage?.loops ?? []).filter(({ reason }) => reason !== "stop");
  if (cut.length > 0) figures.push([strings.play.ended, cut.map(endWords).join("; ")]);
  if (usage?.played && usage.played.underruns > 0) figures.push([strings.play.played, playedWords(usage.played)]);
  if (result.seed !== null) figures.push(["seed", result.seed]);
  return (
    <dl className="figures">
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The starter drew what it could of words that it never learned. */
function Unknown({ words }: { words: readonly string[] }) {
  if (words.length === 0) return null;
  return (
    <p className="wg-play-unknown" role="note">
      <TriangleAlert size={14} aria-hidden />
      <span>
        {strings.play.theStarterDoesNotKnow} <b>{words.join(", ")}</b>.{" "}
        {strings.play.itWasTrainedOn(words.length === 1 ? "this word" : "these words")}
      </span>
    </p>
  );
}

/** Which node the run is at, as telemetry tells. */
function Now({ run }: { run: string | null }) {
  const latest = useLatest();
  if (!latest || latest.run !== run) return null;
  const count = latest.iteration.map((index) => index + 1).join(" · ");
  return (
    <span className="now">
      {latest.node} {count && <b>{count}</b>}
    </span>
  );
}

function Elapsed({ from }: { from: number }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 100);
    return () => clearInterval(timer);
  }, []);
  return <>{(Math.max(0, now - from) / 1000).toFixed(1)} s</>;
}

interface FailureProps {
  result: Result;
  error: RunError;
  onRecord: () => void;
  onNode: Props["onNode"];
}

function Failure({ result: { run, faults }, error, onRecord, onNode }: FailureProps) {
  const place = placeOf(error);
  const { node, walk } = error;
  return (
    <div className="wg-play-error" role="alert">
      <p className="message">
        <Prose text={sentence(error.message)} />
      </p>
      {faults.length > 0 && (
        <ul>
          {faults.map(({ pointer, message }) => (
            <li key={pointer + message}>
              <code>{pointer || "/"}</code> {message}
            </li>
          ))}
        </ul>
      )}
      <p className="advice">{adviceFor(error)}</p>
      <p className="where">
        <code>{error.code}</code>
        {place && <span>{place}</span>}
        {node && onNode && (
          <button type="button" className="wg-play-link" onClick={() => onNode(node)}>
            {strings.play.open(node)}
          </button>
        )}
      </p>
      {run !== null && node && walk && (
        <FailedInputs run={run} walk={walk} node={node} given={error.given ?? {}} onRecord={onRecord} />
      )}
    </div>
  );
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function Times({ result, onNode }: { result: Result; onNode: Props["onNode"] }) {
  const rows = [...result.times].sort((a, b) => b.busy - a.busy);
  const most = rows[0]?.busy || 1;
  const ranks = new Set(rows.map((row) => row.rank)).size > 1;
  return (
    <details className="wg-play-times">
      <summary>{strings.play.whereTheTimeWent}</summary>
      <Table
        columns={[
          strings.play.node,
          ranks ? strings.play.rank : null,
          { className: "number", children: strings.play.calls },
          strings.play.busy,
          { className: "number", children: strings.play.waited },
        ]}
      >
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.walk} ${row.node} ${row.rank}`}>
              <td>
                {row.walk ? (
                  <span title={insideWords(Object.keys(row.inside ?? {}), row.spans)}>
                    <span aria-label={strings.play.loop}>↻</span> {row.node}
                  </span>
                ) : onNode ? (
                  <button type="button" className="wg-play-link" onClick={() => onNode(row.node)}>
                    {row.node}
                  </button>
                ) : (
                  row.node
                )}
              </td>
              {ranks && <td>{row.rank}</td>}
              <td className="number">{row.calls}</td>
              <td className="busy">
                <i style={{ width: `${(row.busy / most) * 60}%` }} />
                <span>{showSeconds(row.busy)}</span>
              </td>
              <td className="number">{showSeconds(row.queued)}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </details>
  );
}
