// The Graph tab: what to add at the left, the canvas with its problems, what is selected at the right.
import {
  ChevronRight,
  PanelBottomClose,
  PanelBottomOpen,
  PanelLeftClose,
  PanelLeftOpen,
  PanelRightClose,
  PanelRightOpen,
} from "lucide-react";
import { useEffect, useMemo, type ReactNode } from "react";
import { GraphCanvas } from "../../canvas/GraphCanvas";
import { Inspector } from "../../panels/inspector/Inspector";
import { Outline } from "../../panels/outline/Outline";
import { Palette } from "../../panels/palette/Palette";
import { Problems } from "../../panels/problems/Problems";
import { InsideEditor } from "../../store/inside";
import { EditorContext, useEditor, useEditorState } from "../../store/react";
import { LiveBar } from "../../telemetry/views";
import { IconButton, Tabs } from "../../ui/kit";
import { CodeView } from "../../versions/CodeView";
import { VersionsView } from "../../versions/VersionsView";
import { Boundary } from "../frame/Boundary";
import { setPanes, usePanes, type Panes } from "../../store/preferences";
import { Splitter } from "../frame/Splitter";
import { isModified } from "../../ui/keys";
import { strings } from "../../strings";

const LEFT = [
  { value: "palette", label: strings.shell.palette, title: strings.shell.componentsToAdd },
  { value: "outline", label: strings.shell.outline, title: strings.shell.theWholeGraph },
] as const;
const RIGHT = [
  { value: "inspector", label: strings.shell.inspector, title: strings.shell.whatIsSelected },
  { value: "versions", label: strings.shell.versions, title: strings.shell.savedVersions },
  { value: "code", label: strings.shell.code, title: strings.shell.theGraphAsJson },
] as const;

export function GraphTab() {
  const opened = useEditorState((state) => state.view.opened);
  return opened ? <Opened key={opened} blueprint={opened} /> : <Graph />;
}

/** The inside of a blueprint, in the place of the graph, with the way back. */
function Opened({ blueprint }: { blueprint: string }) {
  const outer = useEditor();
  const editor = useMemo(() => new InsideEditor(outer, blueprint), [outer, blueprint]);
  useEffect(() => editor.follow(), [editor]);
  const rename = (to: string) => {
    const refused = editor.rename(to);
    if (refused !== null) editor.say(refused, "error");
  };
  return (
    <EditorContext value={editor}>
      <div className="wg-opened">
        <nav className="wg-crumbs" aria-label={strings.shell.insideABlueprint}>
          <button type="button" onClick={() => outer.see({ opened: null })}>
            {outer.inside ?? strings.shell.theGraph}
          </button>
          <ChevronRight size={12} aria-hidden />
          <input
            key={blueprint}
            className="wg-input wg-rename"
            aria-label={strings.shell.blueprintsName}
            defaultValue={blueprint}
            onBlur={(event) => rename(event.target.value.trim())}
            onKeyDown={(event) => {
              if (!isModified(event)) event.stopPropagation();
              if (event.key === "Enter") event.currentTarget.blur();
            }}
          />
        </nav>
        <GraphTab />
      </div>
    </EditorContext>
  );
}

function Graph() {
  const panes = usePanes();
  return (
    <div className="wg-graph">
      <Left panes={panes} />
      <div className="centre">
        <div className="canvas">
          <Boundary what={strings.shell.theCanvas}>
            <GraphCanvas />
            <LiveBar />
          </Boundary>
        </div>
        <Bottom panes={panes} />
      </div>
      <Right panes={panes} />
    </div>
  );
}

function Left({ panes: { left, leftOpen, leftTab } }: { panes: Panes }) {
  const views = { palette: <Palette />, outline: <Outline /> };
  const names = { palette: strings.shell.thePalette, outline: strings.shell.theOutline };
  return (
    <Side
      side="left"
      what={strings.shell.paletteAndOutline}
      open={leftOpen}
      size={left}
      bounds={[180, 480]}
      onOpen={(open) => setPanes({ leftOpen: open })}
      onResize={(size) => setPanes({ left: size })}
      tabs={
        <Tabs
          label={strings.shell.leftPanel}
          value={leftTab}
          onChange={(tab) => setPanes({ leftTab: tab, leftOpen: true })}
          tabs={LEFT}
        />
      }
    >
      <Inside what={names[leftTab]}>{views[leftTab]}</Inside>
    </Side>
  );
}

function Right({ panes: { right, rightOpen, rightTab } }: { panes: Panes }) {
  const views = { inspector: <Inspector />, versions: <VersionsView />, code: <CodeView /> };
  const names = {
    inspector: strings.shell.theInspector,
    versions: strings.shell.theListOfVersions,
    code: strings.shell.theCodeView,
  };
  return (
    <Side
      side="right"
      what={strings.shell.inspectorVersionsAndCode}
      open={rightOpen}
      size={right}
      bounds={[240, 720]}
      onOpen={(open) => setPanes({ rightOpen: open })}
      onResize={(size) => setPanes({ right: size })}
      tabs={
        <Tabs
          label={strings.shell.rightPanel}
          value={rightTab}
          onChange={(tab) => setPanes({ rightTab: tab, rightOpen: true })}
          tabs={RIGHT}
        />
      }
    >
      <Inside what={names[rightTab]}>{views[rightTab]}</Inside>
    </Side>
  );
}

interface SideProps {
  side: "left" | "right";
  /** Its views, in words. */
  what: string;
  open: boolean;
  /** Its width and the bounds of it, in pixels. */
  size: number;
  bounds: readonly [min: number, max: number];
  onOpen: (open: boolean) => void;
  onResize: (size: number) => void;
  tabs: ReactNode;
  children: ReactNode;
}

const ICONS = {
  left: { open: PanelLeftOpen, close: PanelLeftClose },
  right: { open: PanelRightOpen, close: PanelRightClose },
};

function Side({ side, what, open, size, bounds: [min, max], onOpen, onResize, tabs, children }: SideProps) {
  const { open: Open, close: Close } = ICONS[side];
  if (!open)
    return (
      <div className={`rail ${side}`}>
        <IconButton label={strings.shell.show(what)} onClick={() => onOpen(true)}>
          <Open size={16} />
        </IconButton>
      </div>
    );
  const splitter = <Splitter label={strings.shell.widthOfThePanel(side)} {...{ side, size, min, max, onResize }} />;
  return (
    <>
      {side === "right" && splitter}
      <aside
        className={`side ${side}`}
        style={{ width: size }}
        aria-label={what.replace(/^./, (letter) => letter.toUpperCase())}
      >
        <header>
          {tabs}
          <IconButton label={strings.shell.hide(what)} onClick={() => onOpen(false)}>
            <Close size={16} />
          </IconButton>
        </header>
        {children}
      </aside>
      {side === "left" && splitter}
    </>
  );
}

function Bottom({ panes }: { panes: Panes }) {
  const { bottom, bottomOpen } = panes;
  const { problems, of } = useEditorState((state) => state.checked);
  const graph = useEditorState((state) => state.documents.graph);
  const count = problems.length === 0 ? strings.shell.noProblems : strings.shell.problems(problems.length);
  const words = bottomOpen ? strings.shell.problems2 : of === null ? strings.shell.checking : count;
  const toggle = () => setPanes({ bottomOpen: !bottomOpen });
  return (
    <>
      {bottomOpen && (
        <Splitter
          label={strings.shell.heightOfTheProblems}
          side="bottom"
          size={bottom}
          min={80}
          max={480}
          onResize={(size) => setPanes({ bottom: size })}
        />
      )}
      <section className="bottom" aria-label={strings.shell.problems2}>
        <button type="button" className="strip" aria-expanded={bottomOpen} onClick={toggle}>
          <span data-problems={problems.length}>{words}</span>
          {of !== null && of !== graph && <span className="busy">{strings.shell.checking2}</span>}
          {bottomOpen ? <PanelBottomClose size={15} aria-hidden /> : <PanelBottomOpen size={15} aria-hidden />}
        </button>
        {bottomOpen && (
          <div className="inside" style={{ height: bottom }}>
            <Boundary what={strings.shell.theListOfProblems}>
              <Problems />
            </Boundary>
          </div>
        )}
      </section>
    </>
  );
}

/** Each panel has a boundary of its own: another tab starts anew. */
function Inside({ what, children }: { what: string; children: ReactNode }) {
  return (
    <div className="inside">
      <Boundary key={what} what={what}>
        {children}
      </Boundary>
    </div>
  );
}
