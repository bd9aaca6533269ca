// Where components run: ranks as lanes, what fills their memory, and what goes over between them.
import { Server } from "lucide-react";
import { useLayoutEffect, useMemo, useRef, useState } from "react";
import { locate, go } from "../store/locate";
import { useEditor, useEditorState } from "../store/react";
import { Button, Empty, Menu, Tabs, type MenuEntry } from "../ui/kit";
import { plural } from "../ui/words";
import { ProblemList } from "./board/bits";
import { BoardContext, NEW_RANK, type Board } from "./board/board";
import type { Crossing } from "./model/crossings";
import { linkBetween, linkWords } from "./model/costs";
import { CrossingTable } from "./CrossingTable";
import { explicit, removeRank, setDevice } from "../document/placement/edits";
import { setHost } from "../document/placement/hosts";
import { GroupTable } from "./GroupTable";
import { edgeLane } from "./board/ChipView";
import type { Chip, Lane } from "./model/lanes";
import { LaneView, NewLane, UnplacedLane } from "./board/LaneView";
import { Lines } from "./board/Lines";
import { isReadable } from "../document/placement/resolve";
import { OpenDialog, SaveDialog } from "./StoredDialog";
import { Scope, Toolbar, Totals } from "./Toolbar";
import { useBoardState, type BoardState } from "./board/useBoard";
import { useDrag, type Drag, type DragSource } from "./board/useDrag";
import { WalksDialog } from "./WalksDialog";
import { strings } from "../strings";

type Shown = { kind: "open" } | { kind: "save" } | { kind: "walks"; nodes: string[] } | null;

const NONE: readonly string[] = [];
const NOTHING = { wires: 0, results: 0 };

export function PlacementView() {
  const graph = useEditorState((state) => state.documents.graph);
  const placement = useEditorState((state) => state.documents.placement);
  if (Object.keys(graph.nodes ?? {}).length === 0)
    return (
      <div className="wg-view wg-place">
        <Empty title={strings.placement.nothingToPlaceYet}>{strings.placement.addComponentsToTheGraph}</Empty>
      </div>
    );
  if (placement !== null && !isReadable(placement)) return <Unreadable />;
  return <Placement />;
}

function Unreadable() {
  const editor = useEditor();
  const anew = () =>
    editor.editPlacement(strings.placement.placeByHand, () =>
      explicit(editor.graph, "cpu", editor.state.placementName),
    );
  return (
    <div className="wg-view wg-place">
      <Empty title={strings.placement.thisPlacementCantBeRead}>
        <p>{strings.placement.itsListsOfGroups}</p>
        <Button kind="primary" onClick={anew}>
          {strings.placement.startANewOne}
        </Button>
      </Empty>
    </div>
  );
}

function Placement() {
  const editor = useEditor();
  const planned = useEditorState((state) => state.planned);
  const documents = useEditorState((state) => state.documents);
  const [shown, show] = useState<Shown>(null);
  const [menu, openMenu] = useState<{ chip: Chip; at: { x: number; y: number } } | null>(null);
  const walks = Object.keys(documents.graph.walks ?? {});
  const [wanted, setScope] = useState<readonly string[]>(NONE);
  const scope = useMemo(() => wanted.filter((walk) => walks.includes(walk)), [wanted, walks.join()]);
  const [wire, setWire] = useState<Crossing | null>(null);
  const state = useBoardState(scope, wire?.key ?? null, (chip, at) => openMenu({ chip, at }));
  const { board, crossings, edit, told, sorted } = state;
  const { graph, fixed, placement } = board;
  const byHand = () =>
    editor.editPlacement(strings.placement.placeByHand, () => ({
      ...(planned.plan?.placement ? placement : explicit(graph)),
      name: editor.state.placementName,
      graph: editor.state.name,
    }));
  return (
    <BoardContext value={board}>
      <div className="wg-view wg-place">
        <Toolbar
          fixed={fixed}
          planning={planned.of !== documents}
          onHand={byHand}
          onService={() => editor.editPlacement(strings.placement.letTheServiceChoose, () => null)}
          onOpen={() => show({ kind: "open" })}
          onSave={() => show({ kind: "save" })}
        />
        <div className="scroll">
          {planned.plan && planned.plan.ranks.length > 0 && (
            <Totals plan={planned.plan} crossings={crossings.length} />
          )}
          <ProblemList problems={sorted.general} actions={board.actions} />
          {!fixed && <Scope walks={walks} scope={scope} onScope={setScope} />}
          {fixed && <p className="explain">{strings.placement.theServicePutsEverything}</p>}
          <Lanes state={state} />
          <Details state={state} onWire={setWire} />
        </div>
        <p className="visually-hidden" role="status">
          {told}
        </p>
        {menu && (
          <Menu
            at={menu.at}
            entries={chipMenu(
              board,
              menu.chip,
              (nodes) => show({ kind: "walks", nodes }),
              (node) => editor.open({ kind: "components" }, [`node:${node}`]),
            )}
            onClose={() => openMenu(null)}
          />
        )}
        {shown?.kind === "open" && <OpenDialog onClose={() => show(null)} />}
        {shown?.kind === "save" && <SaveDialog placement={placement} onClose={() => show(null)} />}
        {shown?.kind === "walks" && (
          <WalksDialog
            nodes={shown.nodes}
            placement={placement}
            graph={graph}
            onEdit={edit}
            onClose={() => show(null)}
          />
        )}
      </div>
    </BoardContext>
  );
}

function chipMenu(
  board: Board,
  chip: Chip,
  onWalks: (nodes: string[]) => void,
  onShow: (node: string) => void,
): MenuEntry[] {
  const chips = board.taken(chip);
  const nodes = [...new Set(chips.map((other) => other.node))];
  const show = { label: strings.placement.showOnTheCanvas, run: () => onShow(chip.node), apart: true };
  if (board.fixed) return [show];
  const what = nodes.length > 1 ? strings.placement.componentsWithCount(nodes.length) : chip.node;
  return [
    ...board.lanes.lanes.map((lane) => ({
      label: strings.placement.moveToRank(what, lane.rank, lane.device),
      keys: lane.rank < 10 ? String(lane.rank) : "",
      disabled: chips.every((other) => other.rank === lane.rank),
      run: () => board.move(chips, lane.rank),
    })),
    { label: strings.placement.moveToARank, keys: "+", run: () => board.move(chips, NEW_RANK) },
    { label: strings.placement.addAReplica, run: () => board.replicate(chips, NEW_RANK) },
    ...widths(board, chip),
    { label: strings.placement.byWalk, run: () => onWalks(nodes), apart: true },
    show,
  ];
}

/** One rank more or less that a chip is divided over. */
function widths(board: Board, chip: Chip): MenuEntry[] {
  const [more, less] = [edgeLane(board, chip, 1), edgeLane(board, chip, -1)];
  if (chip.rank === null || more === undefined) return [];
  const count = chip.span.length;
  return [
    {
      label: strings.placement.divideOver(count + 1),
      keys: "⇧→",
      apart: true,
      run: () => board.widen(chip, more),
    },
    {
      label: count > 2 ? strings.placement.divideOverOnly(count - 1) : strings.placement.keepWhole,
      keys: "⇧←",
      disabled: less === undefined,
      run: () => less !== undefined && board.widen(chip, less),
    },
  ];
}

function Lanes({ state }: { state: BoardState }) {
  const { board, focus, lit } = state;
  const { lanes, fixed } = board;
  const { drag, source } = useDrag(board);
  const several = new Set([...board.hosts, ...lanes.lanes.map((lane) => lane.host)]).size > 1;
  const area = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const key = focus.current;
    if (key === null) return;
    focus.current = null;
    area.current?.querySelector<HTMLElement>(`[data-chip="${CSS.escape(key)}"]`)?.focus();
  }, [lanes, focus]);
  return (
    <div className="lanes-scroll">
      <div className="lanes" ref={area}>
        {lanes.unplaced.length > 0 && <UnplacedLane chips={lanes.unplaced} drag={drag} source={source} />}
        {byHost(lanes.lanes).map((those) => (
          <HostOfLanes
            key={those[0]?.rank}
            lanes={those}
            several={several}
            state={state}
            drag={drag}
            source={source}
          />
        ))}
        {!fixed && <NewLane drag={drag} onAdd={board.add} />}
        <Lines area={area} crossings={lit} lanes={lanes} />
      </div>
      {drag && (
        <div className="ghost" style={{ left: drag.x + 10, top: drag.y + 8 }} aria-hidden>
          {drag.chips[0]?.node}
          {drag.chips.length > 1 && <b> +{drag.chips.length - 1}</b>}
          {drag.widens && drag.over !== null && <b> {strings.placement.over(drag.targets.length)}</b>}
        </div>
      )}
    </div>
  );
}

/** Lanes that stand together, host by host. */
function byHost(lanes: readonly Lane[]): Lane[][] {
  const found = Map.groupBy(lanes, (lane) => lane.host);
  return [...found.values()];
}

interface HostProps {
  lanes: readonly Lane[];
  /** There are several hosts. */
  several: boolean;
  state: BoardState;
  drag: Drag | null;
  source: DragSource;
}

/** The lanes of a host, under its name if there are several hosts. */
function HostOfLanes({ lanes, several, state, drag, source }: HostProps) {
  const { board, edit } = state;
  const host = lanes[0]?.host ?? "";
  const shown = lanes.map((lane) => (
    <LaneView
      key={lane.rank}
      lane={lane}
      drag={drag}
      source={source}
      onDevice={(rank, device) =>
        edit(strings.placement.deviceOfRank(rank), (current) => setDevice(current, rank, device))
      }
      onHost={(rank, name) =>
        edit(strings.placement.hostOfRank(rank), (current) =>
          setHost(current, rank, name === board.hosts[0] ? null : name),
        )
      }
      onRemove={(rank) =>
        edit(strings.placement.removeRank(rank), (current) => removeRank(current, board.graph, rank))
      }
    />
  ));
  if (!several) return shown;
  const name = host || strings.placement.thisMachine;
  const link = board.plan && linkBetween(board.plan, [board.hosts[0] ?? "", host]);
  const gone = board.hosts.length > 0 && !board.hosts.includes(host);
  return (
    <section className="host" aria-label={strings.placement.host(name)}>
      <h2>
        <Server size={13} aria-hidden /> {name}
        {link && <span className="about">{strings.placement.link(board.hosts[0] ?? "", linkWords(link))}</span>}
        {gone && <span className="bad"> {strings.placement.isNotThere}</span>}
      </h2>
      <div className="host-lanes">{shown}</div>
    </section>
  );
}

type Detail = "crossings" | "groups" | "text";

interface DetailsProps {
  state: BoardState;
  onWire: (crossing: Crossing | null) => void;
}

function Details({ state, onWire }: DetailsProps) {
  const editor = useEditor();
  const plan = useEditorState((shown) => shown.planned.plan);
  const [chosen, choose] = useState<Detail | null>(null);
  const { board, crossings, sorted, edit } = state;
  const noted = [...sorted.group.values()].flat();
  const first: Detail = noted.some((problem) => problem.severity === "error") ? "groups" : "crossings";
  const tabs = [
    {
      value: "crossings" as const,
      label: strings.placement.crossings(crossings.length + (plan?.copies.length ?? 0)),
    },
    ...(board.fixed
      ? []
      : [
          {
            value: "groups" as const,
            label: strings.placement.groups(
              board.placement.groups.length,
              noted.length > 0 ? ` · ${plural(noted.length, "problem")}` : "",
            ),
          },
        ]),
    ...(plan?.drawing ? [{ value: "text" as const, label: strings.placement.thePlanAsText }] : []),
  ];
  const detail = tabs.find((tab) => tab.value === (chosen ?? first))?.value ?? "crossings";
  const open = (crossing: Crossing) => go(editor, locate(board.graph, crossing.pointer));
  return (
    <section className="details" aria-label={strings.placement.details}>
      <Tabs label={strings.placement.details} value={detail} onChange={choose} tabs={tabs} />
      <div role="tabpanel" aria-label={tabs.find((tab) => tab.value === detail)?.label}>
        {detail === "crossings" && (
          <CrossingTable
            crossings={crossings}
            plan={plan}
            copies={plan?.copies ?? []}
            total={plan ? { wires: plan.routes.length, results: plan.handed.length } : NOTHING}
            onHover={onWire}
            onOpen={open}
          />
        )}
        {detail === "groups" && (
          <GroupTable placement={board.placement} problems={sorted.group} actions={board.actions} onEdit={edit} />
        )}
        {detail === "text" && <pre className="drawing">{plan?.drawing}</pre>}
      </div>
    </section>
  );
}
