// Marks of debugging that other views place: the red dot and the pointer at nodes of the canvas, a breakpoint in the
// inspector, that a run of the playground is paused.
import { CirclePause } from "lucide-react";
import { memo, useMemo } from "react";
import { useEditor, useEditorState } from "../store/react";
import { useDeployed, type PausedRun } from "../store/watch";
import { Button } from "../ui/kit";
import { currentCall, look, pause, steer, toggleBreak } from "./model/actions";
import { breaksAt, dotWords, isAt, spotsOf, type Spot } from "./model/breaks";
import { useWatched } from "./model/hooks";
import { useDebugging } from "./model/state";
import { strings } from "../strings";

type Standing = "" | "held" | "next";

/** At a use of a Walk, or a node of the components canvas. */
export const DebugMarks = memo(function DebugMarks({ name, node }: { name: string; node: string }) {
  const editor = useEditor();
  const deployment = useDeployed();
  const walk = useEditorState(({ view }) => (view.canvas.kind === "walk" ? view.canvas.walk : null));
  const graph = useEditorState((state) => (state.view.canvas.kind === "components" ? state.documents.graph : null));
  const spots = useMemo(
    (): Spot[] => (walk !== null ? [{ walk, use: name }] : graph ? spotsOf(graph, node) : []),
    [walk, graph, name, node],
  );
  const breakpoints = useWatched(deployment, (state) => state.breakpoints);
  const standing = useStanding(deployment, (call) =>
    walk === null
      ? call.node === node
      : !call.loop && spots.some((spot) => spot.walk === call.walk && spot.use === call.use),
  );
  const found = useMemo(() => breaksAt(breakpoints, spots), [breakpoints, spots]);
  if (deployment === null || spots.length === 0) return null;
  const words = dotWords(found);
  return (
    <>
      <button
        type="button"
        className={`wg-break nodrag ${found.length ? "set" : ""}`}
        tabIndex={-1}
        aria-label={`${words}: ${name}`}
        aria-pressed={found.length > 0}
        title={words}
        onClick={(event) => {
          event.stopPropagation();
          void toggleBreak(editor, spots);
        }}
        onDoubleClick={(event) => event.stopPropagation()}
      >
        {found.length === 1 && found[0]!.iteration !== null ? found[0]!.iteration + 1 : ""}
      </button>
      <Held standing={standing} />
    </>
  );
});

/** At a loop that a device runs whole, or a closed container with what is held in it. */
export const LoopMarks = memo(function LoopMarks(props: {
  walk: string;
  loop: string;
  closed: boolean;
  nodes: readonly string[];
}) {
  const { walk, loop, closed, nodes } = props;
  const standing = useStanding(
    useDeployed(),
    (call) => call.walk === walk && ((loop !== "" && call.loop === loop) || (closed && nodes.includes(call.node))),
  );
  return <Held standing={standing} />;
});

function useStanding(deployment: string | null, isHere: (call: PausedRun["held"][number]) => boolean): Standing {
  const editor = useEditor();
  const paused = useWatched(deployment, (state) => state.paused);
  const run = useDebugging((state) => state.run);
  useDebugging((state) => state.call);
  const runs = Object.values(paused);
  if (!runs.some(({ held }) => held.some(isHere))) return "";
  const current = runs.find((one) => one.run === run) ?? runs[0]!;
  const next = currentCall(editor, { ...current, deployment: deployment ?? "" });
  return next && isHere(next) ? "next" : "held";
}

function Held({ standing }: { standing: Standing }) {
  if (!standing) return null;
  const words = standing === "next" ? strings.debug.aRunIsPausedBefore : strings.debug.aRunIsPausedBefore2;
  return <i className={`wg-held ${standing}`} role="img" aria-label={words} title={words} />;
}

/** In the inspector: whether runs pause before this use. */
export function BreakField({ walk, use }: Spot) {
  const editor = useEditor();
  const deployment = useDeployed();
  const breakpoints = useWatched(deployment, (state) => state.breakpoints);
  if (deployment === null) return null;
  const found = breakpoints.filter((one) => isAt(one, { walk, use }));
  return (
    <p className="wg-break-field">
      <Button aria-pressed={found.length > 0} onClick={() => void toggleBreak(editor, [{ walk, use }])}>
        <i className="wg-break-sign" aria-hidden />{" "}
        {found.length ? strings.debug.runsPauseBefore : strings.debug.breakBefore}
      </Button>
      {found.length > 0 && <small>{dotWords(found)}</small>}
    </p>
  );
}

/** In the playground: how the run under way stands, and the way to hold it. */
export function RunMark({ deployment, run }: { deployment: string; run: string }) {
  const editor = useEditor();
  const paused = useWatched(deployment, (state) => state.paused)[run];
  if (!paused)
    return (
      <Button
        kind="quiet"
        title={strings.debug.pauseItBeforeItsNext}
        onClick={() => void pause(editor, deployment, run)}
      >
        <CirclePause size={13} aria-hidden /> {strings.debug.pause}
      </Button>
    );
  return (
    <span className="wg-run-paused">
      <Button kind="quiet" title={strings.debug.theCalls} onClick={() => look(editor, run)}>
        <CirclePause size={13} aria-hidden /> {strings.debug.paused2}
      </Button>
      <Button kind="quiet" onClick={() => void steer(editor, { ...paused, deployment }, "resume")}>
        {strings.debug.resume}
      </Button>
    </span>
  );
}
