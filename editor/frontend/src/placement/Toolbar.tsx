// Above the lanes: which placement, for which hardware, does it fit, and which Walks are meant.
import { CircleAlert, CircleCheck, FolderOpen, Hand, LoaderCircle, Save, WandSparkles } from "lucide-react";
import { useEffect, useState } from "react";
import type { PlanShown } from "../messages/answers";
import { useEditor, useEditorState } from "../store/react";
import { Badge, Button, Input, Select } from "../ui/kit";
import { Figures, type Figure } from "../ui/Figures";
import { showBytes } from "../ui/words";
import { CLUSTER, hardwareText, parseHardware, type Assumed } from "./model/hardware";
import { estimate, hostsOf } from "./model/memory";
import { strings } from "../strings";

interface ToolbarProps {
  fixed: boolean;
  /** A newer plan than the one shown is being made. */
  planning: boolean;
  onHand: () => void;
  onService: () => void;
  onOpen: () => void;
  onSave: () => void;
}

export function Toolbar({ fixed, planning, onHand, onService, onOpen, onSave }: ToolbarProps) {
  const planned = useEditorState((state) => state.planned);
  return (
    <div className="toolbar" role="toolbar" aria-label={strings.placement.placement2}>
      {fixed ? (
        <Button kind="primary" onClick={onHand}>
          <Hand size={14} aria-hidden /> {strings.placement.placeByHand}
        </Button>
      ) : (
        <Button onClick={onService} title={strings.placement.everythingOnOneRankChosen}>
          <WandSparkles size={14} aria-hidden /> {strings.placement.letTheServiceChoose}
        </Button>
      )}
      <Button onClick={onOpen}>
        <FolderOpen size={14} aria-hidden /> {strings.placement.storedPlacements}
      </Button>
      {!fixed && (
        <Button onClick={onSave}>
          <Save size={14} aria-hidden /> {strings.placement.saveACopy}
        </Button>
      )}
      <Hardware />
      <span className="grow" />
      <Verdict plan={planned.plan} problem={planned.problem} planning={planning} />
    </div>
  );
}

function Verdict({ plan, problem, planning }: { plan: PlanShown | null; problem: string | null; planning: boolean }) {
  if (problem !== null)
    return (
      <Badge kind="bad">
        <CircleAlert size={12} aria-hidden /> {problem}
      </Badge>
    );
  if (planning || !plan)
    return (
      <Badge kind="busy">
        <LoaderCircle size={12} className="wg-turning" aria-hidden /> {strings.placement.planning}
      </Badge>
    );
  const assumed = plan.devices.some((device) => device.hypothetical);
  if (!plan.ok)
    return (
      <Badge kind="bad">
        <CircleAlert size={12} aria-hidden /> {strings.placement.cantRunLikeThis}
      </Badge>
    );
  if (!plan.deployable)
    return (
      <Badge kind="warn">
        <CircleAlert size={12} aria-hidden /> {strings.placement.fitsButCantBeDeployed}
      </Badge>
    );
  return (
    <Badge kind="good">
      <CircleCheck size={12} aria-hidden /> {assumed ? strings.placement.wouldFit : "fits"}
    </Badge>
  );
}

const DEFAULT: Assumed = { hosts: 1, count: 3, gigabytes: 141 };

/** What runs here, with what is free now or all of it, or hosts and GPUs that need not be here. */
function Hardware() {
  const editor = useEditor();
  const { hardware, plan } = useEditorState((state) => state.planned);
  const set = (text: string) => editor.store.setState({ planned: { ...editor.state.planned, hardware: text } });
  const assumed = parseHardware(hardware);
  const fresh = { here: "", [CLUSTER]: CLUSTER, assumed: hardwareText(DEFAULT) };
  const several = hostsOf(plan).length > 1 && !assumed;
  return (
    <span className="hardware">
      <Select
        aria-label={strings.placement.plan}
        value={assumed ? "assumed" : hardware || "here"}
        onChange={(value) => set(fresh[value as keyof typeof fresh])}
        options={[
          { value: "here", label: several ? strings.placement.forTheCluster : strings.placement.forThisMachine },
          { value: CLUSTER, label: strings.placement.withNothingElseRunning },
          { value: "assumed", label: strings.placement.asIfThereWere },
        ]}
      />
      {assumed && (
        <>
          <NumberField
            label={strings.placement.numberOfHosts}
            value={assumed.hosts}
            most={64}
            onChange={(hosts) => set(hardwareText({ ...assumed, hosts }))}
          />
          <span>{strings.placement.hostsOf}</span>
          <NumberField
            label={strings.placement.numberOfGpus}
            value={assumed.count}
            most={64}
            onChange={(count) => set(hardwareText({ ...assumed, count }))}
          />
          <span aria-hidden>×</span>
          <NumberField
            label={strings.placement.memoryOfEachInGb}
            value={assumed.gigabytes}
            most={4096}
            onChange={(gigabytes) => set(hardwareText({ ...assumed, gigabytes }))}
          />
          <span>{strings.placement.gbGpus}</span>
        </>
      )}
    </span>
  );
}

interface NumberFieldProps {
  label: string;
  value: number;
  most: number;
  onChange: (value: number) => void;
}

function NumberField({ label, value, most, onChange }: NumberFieldProps) {
  const [text, setText] = useState(String(value));
  useEffect(() => setText(String(value)), [value]);
  const valid = (typed: string) => /^\d+$/.test(typed) && Number(typed) >= 1 && Number(typed) <= most;
  return (
    <Input
      type="number"
      min={1}
      max={most}
      aria-label={label}
      aria-invalid={!valid(text)}
      value={text}
      onChange={(event) => {
        setText(event.target.value);
        if (valid(event.target.value)) onChange(Number(event.target.value));
      }}
    />
  );
}

/** The totals of the plan, before anything starts. */
export function Totals({ plan, crossings }: { plan: PlanShown; crossings: number }) {
  const { weights, cache, rest, total } = estimate(plan);
  const figures: Figure[] = [
    [strings.placement.weights, showBytes(weights), strings.placement.overAllRanksEachRank],
    [strings.placement.cache, showBytes(cache), strings.placement.forTheTokensOfRequests],
    [strings.placement.workspaceAndMargin, showBytes(rest), strings.placement.scratchMemoryTensorsSent],
    [strings.placement.total, showBytes(total), strings.placement.overAllRanks],
    [strings.placement.ranks, String(plan.ranks.length), "processes"],
    [strings.placement.wiresThatCross, String(crossings), strings.placement.fromOneRankToAnother],
  ];
  if (plan.copies.length > 0)
    figures.push([
      strings.placement.statesThatMove,
      String(plan.copies.length),
      strings.placement.fromOneRankToAnother,
    ]);
  return <Figures label={strings.placement.estimate} figures={figures} />;
}

interface ScopeProps {
  walks: readonly string[];
  scope: readonly string[];
  onScope: (scope: string[]) => void;
}

/** Which Walks the lanes show and moves apply to. */
export function Scope({ walks, scope, onScope }: ScopeProps) {
  if (walks.length < 2) return null;
  const toggle = (walk: string) =>
    onScope(scope.includes(walk) ? scope.filter((other) => other !== walk) : [...scope, walk]);
  return (
    <div className="scope" role="group" aria-label={strings.placement.walksToShowAndMove}>
      <span>{strings.placement.walks}</span>
      <button type="button" aria-pressed={scope.length === 0} onClick={() => onScope([])}>
        {strings.placement.all2}
      </button>
      {walks.map((walk) => (
        <button key={walk} type="button" aria-pressed={scope.includes(walk)} onClick={() => toggle(walk)}>
          {walk}
        </button>
      ))}
      {scope.length > 0 && <span className="about">{strings.placement.movesApplyToTheseWalks}</span>}
    </div>
  );
}
