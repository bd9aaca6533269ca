// The history: runs of this browser, and those of other clients that the service remembers.
import { Cloud, Columns2, History as HistoryIcon, RotateCw, Trash2, Undo2 } from "lucide-react";
import { useEffect, useMemo, useState, type ReactNode } from "react";
import type { QueueShown, RunShown } from "../messages/answers";
import { StandingMark } from "../session/StandingMark";
import { standingOf } from "../session/queue";
import { Badge, Button, Empty, IconButton, Menu, type MenuEntry } from "../ui/kit";
import { showSeconds, ago } from "../ui/words";
import type { Head } from "./runs/history";
import { linesOf, type Line } from "./runs/lines";
import { labelOf } from "./model/form";
import { strings } from "../strings";

interface Props {
  deployment: string;
  heads: readonly Head[];
  rows: readonly RunShown[];
  /** This client's runs that have not ended. */
  queue: QueueShown;
  shown: string | null;
  comparing: string | null;
  labels: Readonly<Record<string, string>>;
  onOpen: (id: string) => void;
  onAgain: (id: string) => void;
  onCompare: (id: string) => void;
  onRemove: (ids: string[]) => void;
  /** Replay actions for a finished run. */
  replays: (id: string) => MenuEntry[];
  /** Stands above the runs that are over. */
  children?: ReactNode;
}

export function HistoryPane({
  deployment,
  heads,
  rows,
  queue,
  shown,
  comparing,
  labels,
  onOpen,
  onAgain,
  onCompare,
  onRemove,
  replays,
  children,
}: Props) {
  const [menu, setMenu] = useState<{ id: string; x: number; y: number } | null>(null);
  const now = useNow();
  const lines = useMemo(() => linesOf(deployment, heads, rows), [deployment, heads, rows]);
  const own = heads.filter((head) => head.deployment === deployment);
  return (
    <aside className="wg-play-history" aria-label={strings.play.runs}>
      {children}
      <header>
        <h2>{strings.play.runs}</h2>
        {own.length > 0 && <Clear count={own.length} onClear={() => onRemove(own.map((head) => head.id))} />}
      </header>
      {comparing && <p className="wg-play-note">{strings.play.chooseTheRunToCompare}</p>}
      {lines.length === 0 ? (
        <Empty title={strings.play.noRunsYet}>{strings.play.yourRunsAreListedHere}</Empty>
      ) : (
        <ul>
          {lines.map((line) => (
            <li
              key={line.id}
              className={`${line.id === shown ? "shown" : ""} ${line.id === comparing ? "first" : ""}`}
            >
              <button
                type="button"
                className="open"
                aria-current={line.id === shown}
                onClick={() => (comparing ? onCompare(line.id) : onOpen(line.id))}
              >
                <Thumb line={line} />
                <span className="words">
                  <span className="said">{line.said || labels[line.task] || labelOf(line.task)}</span>
                  <span className="wrote">{aboutOf(line, labels)}</span>
                  <span className="when">
                    {!line.own && <Cloud size={12} aria-label={strings.play.runByAnotherClient} />}
                    <Mark line={line} queue={queue} />
                    {ago(line.at / 1000, now / 1000)}
                    {line.seconds !== null && ` · ${showSeconds(line.seconds)}`}
                  </span>
                </span>
              </button>
              <span className="actions">
                <IconButton label={strings.play.loadInputsAndOutputs} onClick={() => onOpen(line.id)}>
                  <Undo2 size={13} />
                </IconButton>
                <IconButton label={strings.play.runAgainWithTheSame} onClick={() => onAgain(line.id)}>
                  <RotateCw size={13} />
                </IconButton>
                {line.over && (
                  <IconButton
                    label={strings.play.replayInTheService}
                    aria-haspopup="menu"
                    aria-expanded={menu?.id === line.id}
                    onClick={(event) => {
                      const box = event.currentTarget.getBoundingClientRect();
                      setMenu({ id: line.id, x: box.left, y: box.bottom + 2 });
                    }}
                  >
                    <HistoryIcon size={13} />
                  </IconButton>
                )}
                <IconButton
                  label={line.id === comparing ? strings.play.stopComparing : strings.play.compare}
                  aria-pressed={line.id === comparing}
                  onClick={() => onCompare(line.id)}
                >
                  <Columns2 size={13} />
                </IconButton>
                {line.own && (
                  <IconButton label={strings.play.deleteFromThisBrowser} onClick={() => onRemove([line.id])}>
                    <Trash2 size={13} />
                  </IconButton>
                )}
              </span>
            </li>
          ))}
        </ul>
      )}
      {menu && <Menu at={menu} entries={replays(menu.id)} onClose={() => setMenu(null)} />}
    </aside>
  );
}

/** Asks once more, in place. */
function Clear({ count, onClear }: { count: number; onClear: () => void }) {
  const [sure, setSure] = useState(false);
  if (!sure) {
    return (
      <Button kind="quiet" title={strings.play.deleteWhatThisBrowserKeeps} onClick={() => setSure(true)}>
        {strings.play.clear}
      </Button>
    );
  }
  return (
    <Button kind="danger" autoFocus onBlur={() => setSure(false)} onClick={() => (setSure(false), onClear())}>
      {strings.play.delete(count === 1 ? strings.play.thisRun : strings.play.theseRuns(count))}
    </Button>
  );
}

/** Its outputs, else its task, else its seed. */
function aboutOf(line: Line, labels: Readonly<Record<string, string>>): string {
  if (line.wrote) return line.wrote;
  if (line.said) return labels[line.task] || labelOf(line.task);
  return line.seed === null ? "" : strings.play.seed(line.seed);
}

function Thumb({ line }: { line: Line }) {
  // The service may have forgotten the picture since it told of it.
  const [gone, setGone] = useState<string | null>(null);
  if (line.thumb && line.thumb !== gone)
    return <img className="thumb" src={line.thumb} alt="" loading="lazy" onError={() => setGone(line.thumb)} />;
  return (
    <span className="thumb letters">
      <span aria-hidden>{line.wrote ? "T" : line.state === "done" ? "·" : "–"}</span>
    </span>
  );
}

const MARKS: Record<Exclude<Line["state"], "done">, [kind: string, words: string]> = {
  failed: ["bad", strings.play.failed],
  cancelled: ["warn", strings.play.stopped],
  running: ["busy", strings.play.running],
  waiting: ["warn", strings.play.waitsForAPerson],
};

function Mark({ line, queue }: { line: Line; queue: QueueShown }) {
  const standing = line.state === "running" ? standingOf(queue, line.id) : null;
  if (standing) return <StandingMark standing={standing} />;
  if (line.state === "done") return null;
  const [kind, words] = MARKS[line.state];
  return <Badge kind={kind}>{words.toLowerCase()}</Badge>;
}

function useNow(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 30_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
