// One value in a task's form: its widget, and the button that takes it out.
import { X } from "lucide-react";
import { IconButton } from "../../ui/kit";
import { color, glyph } from "../../ui/modality";
import { MediaPart, NumbersPart, TextPart } from "./fields";
import { labelOf, widgetOf } from "../model/form";
import type { Part } from "../model/types";
import { strings } from "../../strings";

interface RowProps {
  part: Part;
  label: string;
  titled?: boolean;
  fault: string | undefined;
  removable: boolean;
  onRemove: () => void;
  onChange: (change: Partial<Part>) => void;
  onRun: () => void;
}

export function PartRow({ part, label, titled, fault, removable, onRemove, onChange, onRun }: RowProps) {
  const widget = widgetOf(part.modality);
  const Widget = widget === "text" ? TextPart : widget === "media" ? MediaPart : NumbersPart;
  return (
    <div className="wg-play-part">
      <div className="body">
        {titled && (
          <div className="title">
            <Kind modality={part.modality} /> {labelOf(part.input)}
          </div>
        )}
        <Widget part={part} label={label} fault={fault} onChange={onChange} onRun={onRun} />
      </div>
      {removable && (
        <IconButton label={strings.play.remove(label)} onClick={onRemove}>
          <X size={14} />
        </IconButton>
      )}
    </div>
  );
}

export function Kind({ modality }: { modality: string }) {
  return (
    <span className="wg-play-kind" style={{ color: color(modality) }} title={modality}>
      {glyph(modality)}
    </span>
  );
}
